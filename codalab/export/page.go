package export

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"iter"
	"math"
	"strings"

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

// mostText bounds the bytes of the beginning of a file.
const mostText = 64 << 10

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
