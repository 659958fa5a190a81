package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/cmd/internal/columns"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// fieldOf returns a field of a bundle by its name in `cl info -f`, nil if there is none
// (codalab/lib/worksheet_util.py: interpret_genpath).
func fieldOf(b client.BundleInfo, field string) any {
	if name, ok := strings.CutPrefix(field, "dependencies/"); ok {
		for _, d := range b.Dependencies {
			if d.ChildPath == name {
				return d.Target()
			}
		}
		return codalab.None
	}
	switch field {
	case "dependencies":
		return codalab.DependencyList(b.Dependencies)
	case "summary":
		text, _ := b.Summary()
		return text
	case "host_worksheets":
		return worksheetsText(b.HostWorksheets)
	case "permission":
		return codalab.PermissionSpec(b.Permission)
	case "group_permissions":
		return groupsText(b.GroupPermissions)
	case "owner":
		if b.Owner == nil {
			return nil
		}
		return b.Owner.UserName
	case "owner_id":
		return b.OwnerID
	case "children":
		return childrenText(b.Children)
	case "state_details":
		return b.Details()
	}
	if v, ok := attribute(b.Bundle, field); ok {
		return v
	}
	if v, ok := costField(b.Bundle, field); ok {
		return v
	}
	return b.Metadata[field]
}

// attribute returns a field of the bundle itself, not of its metadata.
func attribute(b codalab.Bundle, field string) (any, bool) {
	text := func(s *string) any {
		if s == nil {
			return nil
		}
		return *s
	}
	switch field {
	case "uuid", "id":
		return b.UUID, true
	case "bundle_type":
		return b.Type, true
	case "state":
		if b.State == "" { // of a bundle that the user may not read
			return nil, true
		}
		return string(b.State), true
	case "command":
		return text(b.Command), true
	case "args":
		return text(b.Args), true
	case "frozen":
		return text(b.Frozen), true
	case "is_anonymous":
		if b.Type == codalab.TypePrivate {
			return nil, true
		}
		return b.IsAnonymous, true
	case "permission_spec":
		return b.PermissionSpec, true
	}
	return nil, false
}

// computedFields are the fields that are neither attributes of a bundle nor its metadata.
func computedFields() []string {
	return []string{
		"uuid", "id", "bundle_type", "state", "state_details", "command", "args", "frozen", "is_anonymous", "permission", "permission_spec",
		"dependencies", "summary", "owner", "owner_id", client.IncludeChildren, client.IncludePermissions, client.IncludeWorksheets,
	}
}

// readFields reads a list of fields, and refuses unknown ones. A field that begins with a slash is a file of
// the bundle, or a value in it.
func readFields(list string) ([]string, error) {
	fields := strings.Split(list, ",")
	known := slices.Concat(computedFields(), costFields(), metadataFields())
	for i, f := range fields {
		f = strings.TrimSpace(f)
		fields[i] = f
		if strings.HasPrefix(f, "/") || strings.HasPrefix(f, "dependencies/") || slices.Contains(known, f) {
			continue
		}
		hint := argparse.DidYouMean("", argparse.Nearest(f, known))
		if hint == "" {
			hint = "; cl help fields lists them"
		}
		return nil, refusef("there is no field %q%s", f, hint)
	}
	return fields, nil
}

// isFile reports whether a field is a file of the bundle.
func isFile(field string) bool { return strings.HasPrefix(field, "/") }

func childrenText(children []codalab.Bundle) string {
	var out []string
	for _, b := range children {
		out = append(out, bundleText(b))
	}
	return strings.Join(out, " ")
}

// bundleText is bundle_cli.py: simple_bundle_str.
func bundleText(b codalab.Bundle) string { return b.Metadata.String("name") + "(" + b.UUID + ")" }

func worksheetsText(list []codalab.WorksheetName) string {
	var out []string
	for _, w := range list {
		out = append(out, w.Name+"("+w.UUID+")")
	}
	return strings.Join(out, " ")
}

// groupsText is codalab/objects/permission.py: group_permissions_str.
func groupsText(list []codalab.GroupPermission) string {
	if len(list) == 0 {
		return "-"
	}
	var out []string
	for _, p := range list {
		out = append(out, fmt.Sprintf("%s(%s):%s", p.GroupName, p.GroupID[:min(8, len(p.GroupID))], codalab.PermissionSpec(p.Permission)))
	}
	return strings.Join(out, ",")
}

// userText is bundle_cli.py: simple_user_str.
func userText(u *codalab.User) string {
	switch {
	case u == nil:
		return "<anonymous>"
	case u.UserName == "":
		return "<anonymous>(" + u.ID + ")"
	}
	return u.UserName + "(" + u.ID + ")"
}

// clockTime is a time for people: that of this machine's zone, with the zone.
func clockTime(t time.Time) string { return codalab.FormatTime(t, time.Local) }

// column is a column of a table.
type column struct {
	name string
	// right justifies it, as numbers are.
	right bool
}

// table is a table for people: rows under their columns' names and a line of dashes (bundle_cli.py:
// print_table). Each row is one line.
type table struct {
	columns []column
	rows    [][]string
	indent  string
	// headless leaves out the columns' names, but not the dashes.
	headless bool
	// width is the width of the terminal to which the rows are cut, 0 for none.
	width int
	// paint paints the text of a cell; nil paints none. Then the table comes unescaped to the stream.
	paint func(row, column int, text string) string
}

// printTable prints a table.
func printTable(w io.Writer, columns []column, rows [][]string) error {
	return table{columns: columns, rows: rows}.print(w)
}

func (t table) print(w io.Writer) error {
	if t.paint != nil {
		w = termtext.Raw(w) // the cells are escaped
	}
	if _, err := io.WriteString(w, strings.Join(t.lines(), "\n")+"\n"); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// lines are the lines of a table. No cell has characters that steer a terminal.
func (t table) lines() []string {
	laid := columns.Table{Rows: t.rows, Width: t.width, Paint: t.paint}
	for _, c := range t.columns {
		laid.Columns = append(laid.Columns, columns.Column{Name: termtext.OneLine(c.name), Right: c.right})
	}
	for _, row := range t.rows {
		for i := range row {
			row[i] = termtext.OneLine(row[i])
		}
	}
	l := laid.Lay()
	var lines []string
	if !t.headless {
		lines = append(lines, t.indent+l.Head())
	}
	lines = append(lines, t.indent+strings.Repeat("-", max(l.Total, 0)))
	for i := range t.rows {
		lines = append(lines, t.indent+l.Row(i))
	}
	return lines
}
