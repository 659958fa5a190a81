package export

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"iter"
	"math"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/katex"
	"github.com/cl-slurm/cl-slurm/internal/markup"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

//go:embed page.html
var pageTemplate string

//go:embed page.css
var pageStyle string

//go:embed formulas.js
var formulasScript string

// pageView has the contents of page.html.
type pageView struct {
	Style   template.CSS
	Heading string
	Description
	// Address is that of the worksheet's own page.
	Address string
	Blocks  iter.Seq[blockView]
	// Uses are the bundles that use a bundle, by its uuid.
	Uses map[string][]Bundle
	// Script shows formulas, and ScriptDigest lets it run and no other; both are empty without formulas.
	Script       template.HTML
	ScriptDigest string
}

// blockView is a part of the worksheet. The page shows the fields that are set.
type blockView struct {
	HTML template.HTML
	// Mistake is the server's sentence about a part that it does not understand.
	Mistake string
	// Header and Rows are those of a table, and Record has the keys and values of a record.
	Header []string
	Rows   iter.Seq[[]cellView]
	Record iter.Seq[[]cellView]
	// Title names a file, and Address leads to it or to its bundle. Image is the address of a picture.
	Title, Address, Image, Text string
	// Links leads to other worksheets, and Elsewhere names what only the server shows.
	Links     []cellView
	Elsewhere string
}

// cellView is a text, which is a link unless Address is empty.
type cellView struct{ Text, Address string }

// mostRows bounds the bytes of a table's rows that are filled in at a time, and mostCalls the requests for the rows of all tables
// beyond which none is divided: the server bounds what it reads for each request, so that these bound the sum.
const (
	mostRows  = 1 << 20
	mostCalls = 200
)

// rows are those of all tables of the worksheet, in their order. They are read while they are written, a part at a time.
type rows struct {
	from    *client.Client
	waiting []json.RawMessage
	// read has the rows of the part that was read last.
	read []filled
	// atOnce is the number of rows that the server may read for one request, after it has refused to read more; else 0.
	atOnce int
	// calls counts requests.
	calls int
}

// filled is a row with its cells, or the sentence with which the server refuses to read them.
type filled struct {
	cells   map[string]any
	refusal string
}

// next returns the next row.
func (r *rows) next(ctx context.Context) (filled, error) {
	if len(r.read) == 0 {
		if err := r.readPart(ctx); err != nil {
			return filled{}, fmt.Errorf("read table: %w", err)
		}
	}
	row := r.read[0]
	r.read = r.read[1:]
	return row, nil
}

// readPart reads some rows. If they are too much for one request, it reads fewer.
func (r *rows) readPart(ctx context.Context) error {
	most := len(r.waiting)
	if r.atOnce > 0 && r.calls < mostCalls {
		most = min(most, r.atOnce)
	}
	n, size := 0, 0
	for n < most && (n == 0 || size+len(r.waiting[n]) <= mostRows) {
		size += len(r.waiting[n])
		n++
	}
	for {
		r.calls++
		cells, err := r.from.TableContents(ctx, r.waiting[:n])
		if n > 1 && r.calls < mostCalls && codalab.IsStatus(err, http.StatusBadRequest) {
			n /= 2
			r.atOnce = n
			continue
		}
		refusal, err := refusalOf(err)
		if err == nil && refusal == "" && len(cells) != n {
			err = fmt.Errorf("the server has sent %d rows instead of %d", len(cells), n)
		}
		if err != nil {
			return err
		}
		r.read = make([]filled, n)
		for i := range r.read {
			if refusal != "" {
				r.read[i].refusal = refusal
			} else {
				r.read[i].cells = cells[i]
			}
		}
		clear(r.waiting[:n])
		r.waiting = r.waiting[n:]
		return nil
	}
}

// refusalOf returns the sentence about what is too much for the server or for the client; other errors stay errors.
func refusalOf(err error) (refusal string, other error) {
	refused, ok := errors.AsType[*codalab.Error](err)
	switch {
	case errors.Is(err, client.ErrTooLarge):
		return "the server's answer does not fit into memory", nil
	case ok && refused.Status == http.StatusBadRequest:
		return refused.Message, nil
	}
	return "", err
}

// blocks reads the blocks of the worksheet. One that shows too much is a mistake on the page, which is not the worksheet itself.
func (e *Exporter) blocks(ctx context.Context) ([]client.Block, error) {
	shown, err := e.from.InterpretWorksheet(ctx, e.Worksheet.UUID)
	refusal, err := refusalOf(err)
	if err != nil {
		return nil, fmt.Errorf("interpret worksheet: %w", err)
	}
	if refusal != "" {
		return []client.Block{{Mode: "markup_block", Error: true, Text: "What the worksheet shows is not here: " + refusal}}, nil
	}
	return shown.Blocks, nil
}

// page writes index.html. Its tables take most of the memory if they are large, so that they are never there as a whole.
func (e *Exporter) page(ctx context.Context, w io.Writer) error {
	blocks, err := e.blocks(ctx)
	if err != nil {
		return err
	}
	v := pageView{Style: template.CSS(pageStyle), Heading: e.heading(), Description: e.Description, Address: e.Server + "/worksheets/" + e.Worksheet.UUID} //nolint:gosec // it is ours
	r := renderer{Exporter: e, markup: markup.New().Page(), rows: rows{from: e.from}}
	views := make([]blockView, len(blocks))
	for i := range blocks { // the head of the page tells whether there are formulas
		if err := r.begin(&blocks[i], &views[i]); err != nil {
			return err
		}
	}
	v.Blocks = func(yield func(blockView) bool) {
		for i, b := range blocks {
			if r.failure != nil || !yield(r.block(ctx, b, views[i])) {
				return
			}
			views[i] = blockView{}
		}
	}
	v.Uses = e.uses()
	if r.formulas {
		script := katex.Script() + formulasScript
		digest := sha256.Sum256([]byte(script))
		v.Script, v.ScriptDigest = template.HTML("<script>"+script+"</script>"), base64.StdEncoding.EncodeToString(digest[:]) //nolint:gosec // it is ours
	}
	functions := template.FuncMap{
		"size": codalab.FormatSize, "path": address, "input": e.input,
		"command": func(b Bundle) string { return codalab.Bundle{Command: b.Command}.CommandText() },
	}
	t, err := template.New("page").Funcs(functions).Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("read the page's template: %w", err)
	}
	if err := t.Execute(w, v); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return r.failure
}

// uses returns the bundles of the worksheet that use a bundle, by its uuid.
func (e *Exporter) uses() map[string][]Bundle {
	uses := map[string][]Bundle{}
	for _, b := range e.Bundles {
		known := map[string]bool{}
		for _, in := range b.Dependencies {
			if !known[in.ParentUUID] {
				known[in.ParentUUID] = true
				uses[in.ParentUUID] = append(uses[in.ParentUUID], b)
			}
		}
	}
	return uses
}

// input shows an input: its name, and its place on the page or on the server.
func (e *Exporter) input(in codalab.Dependency) cellView {
	v := cellView{in.ParentName, e.Server + "/bundles/" + in.ParentUUID}
	if i, ok := e.places[in.ParentUUID]; ok {
		v = cellView{e.Bundles[i].Name(), "#" + in.ParentUUID}
	}
	if v.Text == "" {
		v.Text = in.ParentUUID
	}
	if in.ParentPath != "" {
		v.Text += "/" + in.ParentPath
	}
	return v
}

// renderer makes the parts of the page.
type renderer struct {
	*Exporter
	markup *markup.Page
	levels markup.Headings
	// formulas is set if there are any.
	formulas bool
	rows     rows
	// failure is the first error of a part that is made while the page is written.
	failure error
}

// begin makes a block of markup, and notes the rows of a table.
func (r *renderer) begin(b *client.Block, v *blockView) error {
	switch {
	case b.Mode == "markup_block" && b.Error:
		v.Mistake = b.Text
	case b.Mode == "markup_block":
		text, err := r.relink(string(r.levels.Below(r.markup.HTML(b.Text))))
		v.HTML, b.Text = template.HTML(text), "" //nolint:gosec // it is cleaned
		return err
	case (b.Mode == "table_block" || b.Mode == "record_block") && len(b.Header) > 0:
		r.rows.waiting = append(r.rows.waiting, b.Rows...)
		clear(b.Rows)
	default:
		b.Rows = nil
	}
	return nil
}

// block makes what is left of a block.
func (r *renderer) block(ctx context.Context, b client.Block, v blockView) blockView {
	switch b.Mode {
	case "table_block":
		v.Header, v.Rows = b.Header, r.table(ctx, b)
	case "record_block":
		v.Record = r.table(ctx, b)
	case "contents_block", "image_block":
		v, r.failure = r.file(ctx, b)
	case "subworksheets_block":
		for _, w := range b.Worksheets {
			v.Links = append(v.Links, cellView{w.Name, r.Server + "/worksheets/" + w.UUID})
		}
	case "graph_block":
		v.Elsewhere = "a graph"
	case "placeholder_block":
		v.Elsewhere = b.Directive
	}
	return v
}

// table returns the rows of a table or a record, once.
func (r *renderer) table(ctx context.Context, b client.Block) iter.Seq[[]cellView] {
	return func(yield func([]cellView) bool) {
		for i := range b.Rows {
			row, err := r.rows.next(ctx)
			if err != nil {
				r.failure = err
				return
			}
			if !yield(rowView(b, i, row)) {
				return
			}
		}
	}
}

// rowView shows a row.
func rowView(b client.Block, i int, row filled) []cellView {
	view := make([]cellView, 0, len(b.Header))
	for column, name := range b.Header {
		text := ""
		if value := row.cells[name]; value != nil {
			text = shortened(codalab.PythonStr(value))
		}
		if column == 0 && row.refusal != "" {
			text = "Not here: " + row.refusal
		}
		cell := cellView{Text: text}
		leads := name == "name" || column == 0 && !slices.Contains(b.Header, "name")
		if leads && b.Mode == "table_block" && i < len(b.BundlesSpec.Bundles) {
			cell.Address = "#" + b.BundlesSpec.Bundles[i].UUID
		}
		view = append(view, cell)
	}
	return view
}

// mostCell and mostText bound the bytes of a cell and of the beginning of a file.
const (
	mostCell = 500
	mostText = 64 << 10
)

// shortened is a text for a cell.
func shortened(text string) string {
	if len(text) <= mostCell {
		return text
	}
	return strings.ToValidUTF8(text[:mostCell], "") + "…"
}

// file shows the beginning of a file, or a picture.
func (r *renderer) file(ctx context.Context, b client.Block) (v blockView, err error) {
	uuid := ""
	if len(b.BundlesSpec.Bundles) > 0 {
		uuid = b.BundlesSpec.Bundles[0].UUID
	}
	target := codalab.Target{BundleUUID: uuid, Subpath: inside(b.Path)}
	v.Title, v.Address = "/"+target.Subpath, "#"+uuid
	if b.Mode == "image_block" && b.Status.NotFound() {
		v.Text = "(no such file)"
		return v, nil
	}
	if c := r.contentsOf(uuid); c != nil {
		v.Address = address(joined(*c, target.Subpath))
		if b.Mode == "image_block" {
			v.Image = v.Address
			return v, nil
		}
	}
	if b.Mode == "image_block" {
		return v, nil
	}
	if b.Lines != nil {
		v.Text = termtext.Screen(strings.Join(b.Lines, ""))
		return v, nil
	}
	lines := codalab.Metadata{"n": b.MaxLines}.Int("n")
	stream, err := r.from.OpenLines(ctx, target, int(min(lines, math.MaxInt32)), 0)
	if codalab.IsStatus(err, 400, 403, 404) {
		v.Text = "(no such file)"
		return v, nil
	}
	if err != nil {
		return v, fmt.Errorf("read file: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(stream, mostText))
	_ = stream.Close() // it was only read
	if err != nil {
		return v, fmt.Errorf("read file: %w", err)
	}
	v.Text = termtext.Screen(strings.ToValidUTF8(string(text), "�"))
	return v, nil
}

// relink makes the addresses in cleaned HTML those of the archive, or else those of the server.
func (r *renderer) relink(text string) (string, error) {
	var out strings.Builder
	tokens := html.NewTokenizer(strings.NewReader(text))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			if err := tokens.Err(); err != io.EOF { //nolint:errorlint // as package html returns it
				return "", fmt.Errorf("read markup: %w", err)
			}
			return out.String(), nil
		case html.StartTagToken, html.SelfClosingTagToken:
			out.WriteString(r.relinkTag(tokens.Token()))
		default:
			out.Write(tokens.Raw())
		}
	}
}

func (r *renderer) relinkTag(tag html.Token) string {
	r.formulas = r.formulas || slices.Contains(tag.Attr, html.Attribute{Key: "class", Val: "math"})
	kept := tag.Attr[:0]
	for _, a := range tag.Attr {
		switch {
		case tag.Data == "img" && a.Key == "src":
			local, ok := r.local(a.Val)
			if !ok {
				continue // a page from the disk loads nothing from elsewhere
			}
			a.Val = local
		case a.Key == "href":
			if local, ok := r.local(a.Val); ok {
				a.Val = local
			} else {
				a.Val = r.onServer(a.Val)
			}
		}
		kept = append(kept, a)
	}
	tag.Attr = kept
	return tag.String()
}

// local returns the address in the archive of a file of a bundle with this address on the server.
func (r *renderer) local(href string) (string, bool) {
	u, err := url.Parse(href)
	if err != nil || u.Host != "" || u.Scheme != "" {
		return "", false
	}
	rest, ok := strings.CutPrefix(u.Path, "/rest/bundles/")
	uuid, subpath, found := strings.Cut(rest, "/contents/blob")
	if !ok || !found {
		return "", false
	}
	c := r.contentsOf(uuid)
	if c == nil {
		return "", false
	}
	return address(joined(*c, inside(subpath))), true
}

// inside is a path in a bundle without what would lead out of it.
func inside(subpath string) string { return strings.TrimPrefix(path.Clean("/"+subpath), "/") }

// onServer returns the address on the server of one that is written on the worksheet.
func (r *renderer) onServer(href string) string {
	base, err := url.Parse(r.Server + "/worksheets/" + r.Worksheet.UUID)
	if err != nil {
		return href
	}
	to, err := base.Parse(href)
	if err != nil || strings.HasPrefix(href, "#") {
		return href
	}
	return to.String()
}
