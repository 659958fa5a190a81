package pages

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// worksheetsPage has the contents of worksheets.html.
type worksheetsPage struct {
	Query   string
	Found   []client.Worksheet
	Problem string
}

// CL is the command that shows the same.
func (l worksheetsPage) CL() string {
	words, err := codalab.SplitWords(l.Query)
	if err != nil {
		return ""
	}
	return codalab.JoinWords(append([]string{"cl", "wsearch", ".limit=100"}, words...))
}

// worksheets shows a search for worksheets, at first for the user's own.
func (p *Pages) worksheets(v *visit) error {
	l := worksheetsPage{Query: v.URL.Query().Get("q")}
	if !v.URL.Query().Has("q") && v.user.UserName != "" {
		l.Query = ".mine"
	}
	words, err := codalab.SplitWords(l.Query)
	if err == nil {
		l.Found, err = v.api.SearchWorksheets(v.Context(), append([]string{".limit=100"}, words...)...)
		if no, ok := refusedKeywords(err); ok {
			l.Problem, err = no, nil
		}
	} else {
		l.Problem, err = err.Error(), nil
	}
	if err != nil {
		return fmt.Errorf("search for worksheets: %w", err)
	}
	return p.show(v, http.StatusOK, "worksheets", "Worksheets", l)
}

// mostTableRows is the number of rows of a table that are shown.
const mostTableRows = 1000

// worksheetPage has the contents of worksheet.html.
type worksheetPage struct {
	client.Worksheet
	Heading string
	Blocks  []block
}

// Readers is a sentence with the other readers.
func (w worksheetPage) Readers() string {
	var names []string
	for _, g := range w.GroupPermissions {
		if g.Permission >= codalab.PermissionRead {
			names = append(names, g.GroupName)
		}
	}
	if len(names) == 0 {
		return "Nobody else may read it."
	}
	return "May be read by " + strings.Join(names, ", ") + "."
}

// block is a part of a worksheet. It shows the fields that are set.
type block struct {
	HTML template.HTML
	// Mistake is the server's sentence about a part that it does not understand.
	Mistake string
	// Header and Table are a table's, Bundles has the bundle of each row.
	Header []string
	Table  [][]string
	// Left is the number of rows that are not shown.
	Left    int
	Bundles []client.BlockBundle
	// Record has the keys and values of a record.
	Record []fact
	// Title names a file or a search; Address is the page or the image that it leads to.
	Title, Address string
	Text           []string
	Image          string
	Worksheets     []codalab.WorksheetName
	Graph          *graph
}

// worksheet shows a worksheet.
func (p *Pages) worksheet(v *visit) error {
	w, err := v.api.WorksheetAccess(v.Context(), v.PathValue("uuid"))
	if err != nil {
		return fmt.Errorf("show worksheet: %w", err)
	}
	shown, err := v.api.InterpretWorksheet(v.Context(), w.UUID)
	if err != nil {
		return fmt.Errorf("show worksheet: %w", err)
	}
	page := worksheetPage{Worksheet: w, Heading: w.Name}
	if w.Title != nil && *w.Title != "" {
		page.Heading = *w.Title
	}
	for _, b := range shown.Blocks {
		page.Blocks = append(page.Blocks, p.block(b))
	}
	return p.show(v, http.StatusOK, "worksheet", page.Heading, page)
}

// cells returns the values of a row by their columns; none if it cannot be read.
func cells(row json.RawMessage) map[string]any {
	value, err := codalab.DecodeExact(row)
	if err != nil {
		return nil
	}
	m, _ := value.(map[string]any)
	return m
}

// block returns a block as its page shows it.
func (p *Pages) block(b client.Block) block {
	var out block
	uuid := ""
	if len(b.BundlesSpec.Bundles) > 0 {
		uuid = b.BundlesSpec.Bundles[0].UUID
	}
	switch b.Mode {
	case "markup_block":
		if b.Error {
			out.Mistake = b.Text
		} else {
			out.HTML = p.markup.html(b.Text)
		}
	case "table_block":
		out.Left = max(0, len(b.Rows)-mostTableRows)
		b.Rows = b.Rows[:len(b.Rows)-out.Left]
		out.Header, out.Bundles = b.Header, b.BundlesSpec.Bundles
		for _, row := range b.Rows {
			values := cells(row)
			var texts []string
			for _, name := range b.Header {
				texts = append(texts, shortened(cellText(values[name])))
			}
			out.Table = append(out.Table, texts)
		}
	case "record_block":
		out.Bundles = b.BundlesSpec.Bundles
		for _, row := range b.Rows {
			values := cells(row)
			out.Record = append(out.Record, fact{cellText(values["key"]), shortened(cellText(values["value"]))})
		}
	case "contents_block", "image_block":
		subpath := strings.Trim(b.Path, "/")
		out.Title, out.Address = "/"+subpath, filesAddress(uuid, subpath)
		switch {
		case b.Mode == "image_block":
			out.Image = blob(uuid, subpath)
		case b.Lines == nil:
			out.Text = []string{"(no such file)"}
		default:
			out.Text = b.Lines
		}
	case "subworksheets_block":
		out.Worksheets = b.Worksheets
	case "graph_block":
		out.Graph = newGraph(b.Trajectories)
	case "placeholder_block":
		out.Title = b.Directive
	}
	return out
}

func cellText(value any) string {
	switch x := value.(type) {
	case nil:
		return ""
	case string:
		return x
	case json.Number:
		return x.String()
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

// tableRow pairs the cells of a row with its bundle.
type tableRow struct {
	Bundle client.BlockBundle
	Cells  []string
}

// TableRows are the rows of a table.
func (b block) TableRows() []tableRow {
	var rows []tableRow
	for i, cells := range b.Table {
		r := tableRow{Cells: cells}
		if i < len(b.Bundles) {
			r.Bundle = b.Bundles[i]
		}
		rows = append(rows, r)
	}
	return rows
}

// Link is the number of the column whose cells lead to the bundles.
func (b block) Link() int { return max(0, slices.Index(b.Header, "name")) }
