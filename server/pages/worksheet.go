package pages

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/markup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/preview"
	"github.com/cl-slurm/cl-slurm/server/rest"
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

const (
	// mostTableRows is the number of rows of a table that are shown, which may be those of a search.
	mostTableRows = 1000
	// partItems is the number of items of a worksheet that come at a time.
	partItems = 1000
)

// worksheetPage has the contents of worksheet.html.
type worksheetPage struct {
	client.Worksheet
	Heading string
	// Part has the items from the one with the number First on.
	Part  sheetPart
	First int
	Mine  bool
}

// sheetPart is a part of a worksheet.
type sheetPart struct {
	UUID   string
	Blocks []block
	// Next is the number of the item behind it; nil if it is the last one.
	Next *int
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

// leadByName leads from an address with a worksheet's name, such as that of CodaLab's Gallery: home, to the one with its uuid. It
// reports whether it has answered.
func (v *visit) leadByName(ctx context.Context) (led bool, err error) {
	spec := v.PathValue("uuid")
	if codalab.IsUUID(spec) {
		return false, nil
	}
	w, err := v.api.FindWorksheet(ctx, "", spec)
	if err != nil {
		return false, fmt.Errorf("find worksheet: %w", err)
	}
	to := *v.URL
	segments := strings.Split(to.EscapedPath(), "/") // of /worksheets/NAME, and what follows
	segments[2] = w.UUID
	to.Path, to.RawPath = strings.Join(segments, "/"), ""
	rest.Go(v.ResponseWriter, v.Request, to.RequestURI())
	return true, nil
}

// worksheet shows a worksheet.
func (p *Pages) worksheet(v *visit) error {
	w, err := v.api.WorksheetAccess(v.Context(), v.PathValue("uuid"))
	if err != nil {
		return fmt.Errorf("show worksheet: %w", err)
	}
	first, _ := strconv.Atoi(v.URL.Query().Get("first")) // 0 for what is no number
	page := worksheetPage{Worksheet: w, Heading: headingOf(w), First: max(0, first), Mine: mayChange(w)}
	shown, err := v.api.InterpretPart(v.Context(), w.UUID, page.First, partItems)
	if err != nil {
		return fmt.Errorf("show worksheet: %w", err)
	}
	page.Part = p.sheetPart(w.UUID, shown)
	return p.show(v, http.StatusOK, "worksheet", page.Heading, page)
}

// headingOf returns the title of a worksheet, or else its name.
func headingOf(w client.Worksheet) string {
	if w.Title != nil && *w.Title != "" {
		return *w.Title
	}
	return w.Name
}

// mayChange reports whether the reader may change a worksheet.
func mayChange(w client.Worksheet) bool {
	return w.Permission != nil && *w.Permission >= codalab.PermissionAll
}

// sheetPart returns a part of a worksheet as its page shows it.
func (p *Pages) sheetPart(uuid string, shown client.Interpretation) sheetPart {
	out := sheetPart{UUID: uuid, Next: shown.Next}
	var levels markup.Headings
	texts := p.markup.Page()
	for _, b := range shown.Blocks {
		made := newBlock(b, texts)
		made.HTML = levels.Below(made.HTML)
		out.Blocks = append(out.Blocks, made)
	}
	return out
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

// newBlock returns a block as its page shows it.
func newBlock(b client.Block, texts *markup.Page) block {
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
			out.HTML = texts.HTML(b.Text)
		}
	case "table_block":
		out.Left = max(0, len(b.Rows)-mostTableRows)
		b.Rows = b.Rows[:len(b.Rows)-out.Left]
		out.Header, out.Bundles = b.Header, b.BundlesSpec.Bundles
		for _, row := range b.Rows {
			values := cells(row)
			var texts []string
			for _, name := range b.Header {
				texts = append(texts, preview.Shortened(cellText(values[name])))
			}
			out.Table = append(out.Table, texts)
		}
	case "record_block":
		out.Bundles = b.BundlesSpec.Bundles
		for _, row := range b.Rows {
			values := cells(row)
			out.Record = append(out.Record, fact{cellText(values["key"]), preview.Shortened(cellText(values["value"]))})
		}
	case "contents_block", "image_block":
		subpath := strings.Trim(b.Path, "/")
		out.Title, out.Address = "/"+subpath, filesAddress(uuid, subpath)
		switch {
		case b.Mode == "image_block" && !b.Status.NotFound():
			out.Image = blob(uuid, subpath)
		case b.Lines == nil:
			out.Text = []string{"(no such file)"}
		case len(b.Lines) == 0: // it is empty, or its first line is too long
			out.Text = []string{"(no lines to show)"}
		default:
			for _, line := range b.Lines {
				out.Text = append(out.Text, termtext.Screen(line))
			}
		}
	case "subworksheets_block":
		out.Worksheets = b.Worksheets
	case "graph_block":
		out.Graph = newGraph(b)
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
	case []any:
		if words, ok := wordsOf(x); ok {
			return words
		}
	}
	return jsonText(value)
}

// wordsOf joins a list of texts, such as that of tags.
func wordsOf(list []any) (text string, ok bool) {
	var words []string
	for _, value := range list {
		word, isText := value.(string)
		if !isText {
			return "", false
		}
		words = append(words, word)
	}
	return strings.Join(words, " "), true
}

// jsonText is a value as JSON for people, in which < is no \u003c.
func jsonText(value any) string {
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return ""
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// TableRows are the rows of a table. A template that writes a thousand of them takes five times as long.
func (b block) TableRows() template.HTML {
	var out strings.Builder
	link := max(0, slices.Index(b.Header, "name"))
	for i, cells := range b.Table {
		out.WriteString("\n<tr>")
		for c, text := range cells {
			out.WriteString("<td>")
			if leads := c == link && i < len(b.Bundles) && codalab.IsUUID(b.Bundles[i].UUID); leads {
				out.WriteString(`<a href="/bundles/` + b.Bundles[i].UUID + `">` + template.HTMLEscapeString(cmp.Or(text, "?")) + "</a>")
			} else {
				out.WriteString(template.HTMLEscapeString(text))
			}
			out.WriteString("</td>")
		}
		out.WriteString("</tr>")
	}
	return template.HTML(out.String()) //nolint:gosec // all texts are escaped
}
