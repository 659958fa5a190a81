package markup

import (
	"bytes"
	"errors"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// deepest bounds quotes and lists in each other: each line behind them is compared with all of them.
const deepest = 200

// The most marks of emphasis and beginnings of links of a paragraph, each of which is compared with those before it.
const (
	mostMarks = 20_000
	mostLinks = 4000
)

// takesLong reports whether a text has so many levels or marks that the time for it grows with their square.
func takesLong(source string) bool {
	marks, links := 0, 0
	for line := range strings.Lines(source) {
		if strings.TrimSpace(line) == "" || beginsItem(line) { // a paragraph ends here, if there is one
			marks, links = 0, 0
		}
		marks += strings.Count(line, "*") + strings.Count(line, "_") + strings.Count(line, "~") + strings.Count(line, "\\|")
		links += strings.Count(line, "](")
		if depth(line) > deepest || marks > mostMarks || links > mostLinks {
			return true
		}
	}
	return false
}

// beginsItem reports whether a line begins an item of a list, which also ends a paragraph.
func beginsItem(line string) bool {
	item := strings.TrimLeft(line, " ")
	return len(line)-len(item) < 4 && len(item) > 2 && strings.IndexByte("-+*", item[0]) >= 0 && item[1] == ' ' && strings.TrimSpace(item[2:]) != ""
}

// depth is an upper bound of the number of quotes and lists in which a line begins.
func depth(line string) int {
	levels, blanks := 0, 0
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == ' ':
			blanks++
		case c == '\t':
			blanks += 4
		case c == '>':
			levels++
		case !isMarker(line[i:]):
			return levels + blanks/2
		default:
			blanks++ // with the blank after it one level, as the blanks that stand for it in other lines
		}
	}
	return levels + blanks/2
}

// isMarker reports whether a text may begin with a list's mark, or with the rest of one.
func isMarker(text string) bool {
	digits := strings.TrimLeft(text, "0123456789")
	if len(text)-len(digits) > 9 || digits == "" {
		return false
	}
	if digits == text && strings.IndexByte("-+*.)", text[0]) < 0 || digits != text && digits[0] != '.' && digits[0] != ')' {
		return false
	}
	return len(digits) == 1 || strings.IndexByte(" \t\r\n", digits[1]) >= 0
}

// tables reads tables as extension.Table does, but for wide ones. A row may have fewer cells than the table has columns, and
// gets the others, so that a table of n bytes could get n² cells.
type tables struct {
	transform parser.ParagraphTransformer
	// cells is the key of the number of cells of a text's tables.
	cells parser.ContextKey
}

func newTables() tables {
	return tables{extension.NewTableParagraphTransformer(), parser.NewContextKey()}
}

// Extend adds the tables.
func (t tables) Extend(m goldmark.Markdown) {
	m.Parser().AddOptions(
		parser.WithParagraphTransformers(util.Prioritized(t, 200)),
		parser.WithASTTransformers(util.Prioritized(extension.NewTableASTTransformer(), 0)),
	)
	html := extension.NewTableHTMLRenderer(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)) // not by a style, which pages let not through
	m.Renderer().AddOptions(renderer.WithNodeRenderers(util.Prioritized(html, 500)))
}

// Transform makes a table of a paragraph that is one, unless the text's tables have too many cells.
func (t tables) Transform(node *ast.Paragraph, in text.Reader, pc parser.Context) {
	cells, _ := pc.Get(t.cells).(int)
	cells += cellsOf(node.Lines(), in.Source())
	pc.Set(t.cells, cells)
	if !t.tooWide(len(in.Source()), pc) {
		t.transform.Transform(node, in, pc)
	}
}

// tooWide reports whether the tables of a text of a size have more cells than can have been written in it.
func (t tables) tooWide(size int, pc parser.Context) bool {
	cells, _ := pc.Get(t.cells).(int)
	return cells > 1000+size/2
}

// cellsOf is an upper bound of the cells of the table that a paragraph would become: the columns of its first line that may end a
// header, for each line.
func cellsOf(lines *text.Segments, source []byte) int {
	for i := 1; i < lines.Len(); i++ {
		at := lines.At(i)
		line := at.Value(source)
		if bytes.IndexByte(line, '-') >= 0 && len(bytes.Trim(line, "-:| \t\r\n")) == 0 {
			return (bytes.Count(bytes.Trim(line, "| \t\r\n"), []byte("|")) + 1) * lines.Len()
		}
	}
	return 0
}

// isShort reports whether the addresses and titles of links and pictures have at most so many bytes, of which many may be those
// of one reference. All else of a text is in its HTML once.
func isShort(doc ast.Node, most int) bool {
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			most -= len(n.Destination) + len(n.Title)
		case *ast.Image:
			most -= len(n.Destination) + len(n.Title)
		}
		if most < 0 {
			return ast.WalkStop, errTooLong
		}
		return ast.WalkContinue, nil
	})
	return err == nil
}

var errTooLong = errors.New("the text is too long")

// bounded is a buffer for so many bytes.
type bounded struct {
	data []byte
	left int
}

// Write fails if the bytes are too many.
func (b *bounded) Write(data []byte) (int, error) { return b.WriteString(string(data)) }

// WriteString is Write for a string.
func (b *bounded) WriteString(data string) (int, error) {
	if b.left -= len(data); b.left < 0 {
		return 0, errTooLong
	}
	b.data = append(b.data, data...)
	return len(data), nil
}
