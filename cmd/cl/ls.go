package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// lsFields are the columns of ls (bundle_cli.py: DEFAULT_BUNDLE_INFO_LIST_FIELDS).
const lsFields = "uuid,name,summary,owner,created,data_size,state"

const lsHelp = `List the bundles on a worksheet, each with its position ^N from the end.

Keywords choose and sort among them as cl search does:

  cl ls state=failed           the runs that failed
  cl ls size=.sort- .limit=5   the five largest
  cl ls '/stats.json:acc=.sort-' '/stats.json:loss<0.3'
                               sorted and chosen by values of their files
  cl ls -f name,state,/stdout,/stats.json:test/error
                               with values of their files as columns

cl help fields lists the fields.`

// lsCommand is bundle_cli.py: do_ls_command.
func (c *cli) lsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [<keyword>...]", Short: "List the bundles on a worksheet", Long: lsHelp,
		ValidArgsFunction: completeWords(searchWords()...),
	}
	worksheet := c.worksheetFlag(cmd)
	l := c.listingFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		fields, err := l.read(c)
		if err != nil {
			return err
		}
		return c.listBundles(cmd.Context(), *worksheet, args, l, fields)
	}
	return cmd
}

// listing has the flags of commands that list bundles.
type listing struct {
	cmd      *cobra.Command
	fields   string
	uuidOnly bool
	watch    bool
	csv      bool
}

func (c *cli) listingFlags(cmd *cobra.Command) *listing {
	l := &listing{cmd: cmd}
	c.colourFlag(cmd)
	cmd.Flags().BoolVarP(&l.uuidOnly, "uuid-only", "u", false, "print only uuids")
	csvFlag(cmd, &l.csv)
	cmd.Flags().StringVarP(&l.fields, "field", "f", lsFields, "print these comma-separated fields")
	_ = cmd.RegisterFlagCompletionFunc("field", completeFields) // the flag is there
	cmd.Flags().BoolVar(&l.watch, "watch", false, "show it anew on the terminal until Ctrl-C; elsewhere print each change as a line")
	return l
}

// completeFields offers fields for the last one of a list.
func completeFields(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	before := begun[:strings.LastIndexByte(begun, ',')+1]
	var lists []string
	for _, f := range slices.Concat(computedFields(), costFields(), metadataFields()) {
		if strings.HasPrefix(before+f, begun) {
			lists = append(lists, before+f)
		}
	}
	return lists, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func (c *cli) listBundles(ctx context.Context, worksheet string, keywords []string, l *listing, fields []string) error {
	look := func(ctx context.Context) (listed, error) {
		return c.listed(ctx, worksheet, keywords, l.keys(c.asJSON, fields))
	}
	if l.watch {
		return c.watchBundles(ctx, l, fields, look)
	}
	found, err := look(ctx)
	if err != nil {
		return err
	}
	if l.uuidOnly || c.asJSON || l.csv {
		return c.printChosen(ctx, found.at, found.bundles, l, fields)
	}
	if err := c.print(found.heading); err != nil {
		return err
	}
	if found.left > 0 {
		c.warn("%d of %d bundles are left out: they have no value at %s.", found.left, found.left+len(found.bundles), strings.Join(sortedBy(keywords), " and "))
	}
	t, err := found.table(ctx, fields)
	if err != nil {
		return err
	}
	return c.onTerminal(t, found.bundles).print(c.Stdout)
}

// listed are the bundles that a command lists, and the parts of its answer around their fields.
type listed struct {
	at      *workspace
	heading string
	bundles []client.BundleInfo
	// refs are their positions on the worksheet, nil for those that a search has found.
	refs []string
	// left is the number of bundles of a worksheet that are left out because they lack the value to sort by.
	left int
}

// sortedBy returns the values in files by which keywords sort; nil if they do more than that.
func sortedBy(keywords []string) (values []string) {
	for _, word := range keywords {
		key, order, _ := strings.Cut(word, "=")
		if !isFile(key) || order != ".sort" && order != ".sort-" {
			return nil
		}
		values = append(values, key)
	}
	return values
}

// listed returns the bundles of a worksheet, or those that match keywords, with some keys of metadata.
func (c *cli) listed(ctx context.Context, worksheet string, keywords, keys []string) (listed, error) {
	w, at, err := c.worksheetBundles(ctx, worksheet, keys...)
	if err != nil {
		return listed{}, err
	}
	found := listed{at: at, bundles: w.Bundles, heading: worksheetHeading(at.Address(), w), refs: []string{}}
	refs := map[string]string{} // of a bundle that is there several times, that of the last one
	for i, b := range w.Bundles {
		ref := fmt.Sprintf("^%d", len(w.Bundles)-i)
		refs[b.UUID] = ref
		found.refs = append(found.refs, ref)
	}
	if len(keywords) == 0 {
		return found, nil
	}
	found.bundles, err = at.chosen(ctx, w, keywords, keys)
	found.refs = []string{}
	for _, b := range found.bundles {
		found.refs = append(found.refs, refs[b.UUID])
	}
	if len(sortedBy(keywords)) > 0 {
		found.left = len(refs) - len(found.bundles)
	}
	return found, err
}

// table is the table of the bundles with these fields.
func (l listed) table(ctx context.Context, fields []string) (table, error) {
	t, err := l.at.table(ctx, l.bundles, fields)
	if err != nil || l.refs == nil {
		return t, err
	}
	t.columns = append([]column{{name: "ref", right: true}}, t.columns...)
	for i, ref := range l.refs {
		t.rows[i] = append([]string{ref}, t.rows[i]...)
	}
	return t, nil
}

// chosen returns the bundles of a worksheet that match keywords, as the search sorts them, with some keys of metadata.
func (w *workspace) chosen(ctx context.Context, sheet client.Worksheet, keywords, keys []string) ([]client.BundleInfo, error) {
	query := append([]string{"host_worksheet=" + sheet.UUID}, keywords...)
	if !isLimited(keywords) {
		query = append(query, fmt.Sprintf(".limit=%d", len(sheet.Bundles)+1))
	}
	found, number, err := w.find(ctx, sheet.UUID, query, keys...)
	if number != nil {
		return nil, refusef("cl ls lists bundles; cl search counts them and adds them up")
	}
	return found, err
}

// table is the table of bundles with these fields.
func (w *workspace) table(ctx context.Context, bundles []client.BundleInfo, fields []string) (table, error) {
	var t table
	for _, f := range fields {
		t.columns = append(t.columns, column{name: f, right: f == "data_size"})
	}
	values, err := w.fileValues(ctx, bundles, fields)
	if err != nil {
		return t, err
	}
	for _, b := range bundles {
		var row []string
		for _, f := range fields {
			if isFile(f) {
				row = append(row, fileText(values[fileField{b.UUID, f}]))
			} else {
				row = append(row, cell(b, f))
			}
		}
		t.rows = append(t.rows, row)
	}
	return t, nil
}

// fileText formats a value from a file; a missing value is empty.
func fileText(value any) string {
	if value == nil {
		return ""
	}
	return codalab.PythonStr(value)
}

// printChosen prints bundles as uuids, as CSV or as JSON: all of them, or their fields if -f is given.
func (c *cli) printChosen(ctx context.Context, at *workspace, bundles []client.BundleInfo, l *listing, fields []string) error {
	if l.uuidOnly {
		return c.printUUIDs(uuidsOf(bundles))
	}
	if !l.csv && !l.cmd.Flags().Changed("field") {
		return c.printJSON(viewBundles(bundles))
	}
	values, err := at.fileValues(ctx, bundles, fields)
	if err != nil {
		return err
	}
	if l.csv {
		return c.printCSV(fields, viewFields(bundles, fields, values))
	}
	return c.printJSON(viewFields(bundles, fields, values))
}

// viewFields are some fields of bundles, in JSON.
func viewFields(bundles []client.BundleInfo, fields []string, values map[fileField]any) []map[string]any {
	list := []map[string]any{}
	for _, b := range bundles {
		one := map[string]any{}
		for _, f := range fields {
			if isFile(f) {
				one[f] = values[fileField{b.UUID, f}]
			} else {
				one[f] = fieldOf(b, f)
			}
		}
		list = append(list, one)
	}
	return list
}

// worksheetBundles returns a worksheet with its bundles, and its server. If keys of metadata are named, the bundles may lack
// all others.
func (c *cli) worksheetBundles(ctx context.Context, spec string, keys ...string) (client.Worksheet, *workspace, error) {
	at, uuid, err := c.openWorksheet(ctx, spec)
	if err != nil {
		return client.Worksheet{}, nil, err
	}
	w, err := at.WorksheetBundles(ctx, uuid, keys...)
	return w, at, err
}

// cell is a field in a table. A long summary is cut.
func cell(b client.BundleInfo, field string) string {
	switch field {
	case "uuid":
		return shortUUID(b.UUID)
	case "summary":
		text, _ := b.Summary()
		line, rest, _ := strings.Cut(text, "\n")
		if short := []rune(line); len(short) > 48 || rest != "" {
			return string(short[:min(48, len(short))]) + "..."
		}
		return line
	}
	switch v := fieldOf(b, field).(type) {
	case nil:
		return ""
	case []any: // as CodaLab's cl prints it
		return codalab.PythonStr(v)
	default:
		return codalab.FormatMetadata(field, v, time.Local)
	}
}

// worksheetHeading describes a worksheet above its bundles (bundle_cli.py:
// _worksheet_description).
func worksheetHeading(address string, w client.Worksheet) string {
	title := codalab.None
	if w.Title != nil {
		title = *w.Title
	}
	mark := func(s string, on bool, mark string) string {
		if on {
			return s + " [" + mark + "]"
		}
		return s
	}
	lines := []string{
		"### Worksheet: " + worksheetURL(address, w.WorksheetName),
		"### Title: " + title,
		"### Tags: " + strings.Join(w.Tags, " "),
		"### Owner: " + mark(userText(w.Owner), w.IsAnonymous, "anonymous"),
		"### Permissions: " + mark(groupsText(w.GroupPermissions), w.Frozen != nil, "frozen"),
	}
	for i, line := range lines {
		lines[i] = termtext.OneLine(line)
	}
	return strings.Join(lines, "\n")
}
