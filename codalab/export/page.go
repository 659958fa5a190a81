package export

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
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
	Blocks  []blockView
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
	Rows   [][]cellView
	Record [][]cellView
	// Title names a file, and Address leads to it or to its bundle. Image is the address of a picture.
	Title, Address, Image, Text string
	// Links leads to other worksheets, and Elsewhere names what only the server shows.
	Links     []cellView
	Elsewhere string
}

// cellView is a text, which is a link unless Address is empty.
type cellView struct{ Text, Address string }

// block is a block of the worksheet, and the table that it shows if it shows one.
type block struct {
	client.Block
	table *blockView
}

// readBlocks reads the blocks of the worksheet, and the cells of their tables.
func (e *Exporter) readBlocks(ctx context.Context) error {
	shown, err := e.from.InterpretWorksheet(ctx, e.Worksheet.UUID)
	for i := 0; err == nil && i < len(shown.Blocks); i++ {
		one := block{Block: shown.Blocks[i]}
		if one.Mode == "table_block" || one.Mode == "record_block" {
			var table blockView
			table, err = e.table(ctx, one.Block)
			one.table, one.Rows = &table, nil
		}
		e.blocks = append(e.blocks, one)
	}
	if errors.Is(err, client.ErrTooLarge) {
		return &TooLargeError{"the server's answer with what its page shows does not fit into memory"}
	}
	if err != nil {
		return fmt.Errorf("interpret worksheet: %w", err)
	}
	return nil
}

// page returns index.html.
func (e *Exporter) page(ctx context.Context) ([]byte, error) {
	v := pageView{Style: template.CSS(pageStyle), Heading: e.heading(), Description: e.Description, Address: e.Server + "/worksheets/" + e.Worksheet.UUID} //nolint:gosec // it is ours
	r := renderer{Exporter: e, markup: markup.New().Page()}
	for _, b := range e.blocks {
		shown, err := r.block(ctx, b)
		if err != nil {
			return nil, err
		}
		v.Blocks = append(v.Blocks, shown)
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
		return nil, fmt.Errorf("read the page's template: %w", err)
	}
	var text bytes.Buffer
	if err := t.Execute(&text, v); err != nil {
		return nil, fmt.Errorf("write the page: %w", err)
	}
	return text.Bytes(), nil
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
}

func (r *renderer) block(ctx context.Context, b block) (v blockView, err error) {
	if b.table != nil {
		return *b.table, nil
	}
	switch b.Mode {
	case "markup_block":
		if b.Error {
			v.Mistake = b.Text
			return v, nil
		}
		text, err := r.relink(string(r.levels.Below(r.markup.HTML(b.Text))))
		v.HTML = template.HTML(text) //nolint:gosec // it is cleaned
		return v, err
	case "contents_block", "image_block":
		return r.file(ctx, b.Block)
	case "subworksheets_block":
		for _, w := range b.Worksheets {
			v.Links = append(v.Links, cellView{w.Name, r.Server + "/worksheets/" + w.UUID})
		}
	case "graph_block":
		v.Elsewhere = "a graph"
	case "placeholder_block":
		v.Elsewhere = b.Directive
	}
	return v, nil
}

// table shows a table or a record.
func (e *Exporter) table(ctx context.Context, b client.Block) (v blockView, err error) {
	contents, err := e.from.TableContents(ctx, b.Rows)
	if err != nil {
		return v, fmt.Errorf("read table: %w", err)
	}
	var rows [][]cellView
	for i, cells := range contents {
		var row []cellView
		for column, name := range b.Header {
			text := ""
			if value := cells[name]; value != nil {
				text = shortened(codalab.PythonStr(value))
			}
			cell := cellView{Text: text}
			leads := name == "name" || column == 0 && !slices.Contains(b.Header, "name")
			if leads && b.Mode == "table_block" && i < len(b.BundlesSpec.Bundles) {
				cell.Address = "#" + b.BundlesSpec.Bundles[i].UUID
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	if b.Mode == "record_block" {
		return blockView{Record: rows}, nil
	}
	return blockView{Header: b.Header, Rows: rows}, nil
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
