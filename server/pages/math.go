package pages

import (
	"bytes"
	"html/template"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// longestFormula bounds the bytes of a formula, so that no text takes long to read.
const longestFormula = 2000

// formulas reads formulas of TeX in Markdown, $in a line$ and $$as a block$$, which math.js shows. Without scripts they are
// shown as they are written. As in CodaLab's own page a price is no formula: after the first $ and before the last one comes no
// space, and after the last one no digit.
type formulas struct{}

// Trigger returns the character with which a formula begins.
func (formulas) Trigger() []byte { return []byte{'$'} }

// Parse reads a formula; nil if there is none.
func (formulas) Parse(_ ast.Node, in text.Reader, _ parser.Context) ast.Node {
	line, at := in.Position()
	marks := []byte("$")
	if begin, _ := in.PeekLine(); bytes.HasPrefix(begin, []byte("$$")) {
		marks = []byte("$$")
	}
	in.Advance(len(marks))
	var source []byte
	for {
		rest, _ := in.PeekLine()
		if rest == nil || len(source) > longestFormula {
			in.SetPosition(line, at)
			return nil
		}
		if end := formulaEnd(source, rest, marks); end >= 0 {
			in.Advance(end + len(marks))
			return formulaNode(append(source, rest[:end]...), marks)
		}
		source = append(source, rest...)
		in.AdvanceLine()
	}
}

// formulaEnd returns where in a line a formula ends that began with before; -1 if it goes on.
func formulaEnd(before, line, marks []byte) int {
	for from := 0; from < min(len(line), longestFormula); {
		i := bytes.Index(line[from:min(len(line), from+longestFormula)], marks)
		if i < 0 {
			return -1
		}
		end := from + i
		from = end + 1
		inside := append(bytes.Clone(before), line[:end]...)
		after := line[end+len(marks):]
		switch {
		case len(bytes.TrimSpace(inside)) == 0, inside[len(inside)-1] == '\\':
		case len(marks) == 2:
			return end
		case inside[0] == ' ', inside[0] == '\n', bytes.HasSuffix(inside, []byte(" ")), len(after) > 0 && after[0] >= '0' && after[0] <= '9':
		default:
			return end
		}
	}
	return -1
}

func formulaNode(source, marks []byte) ast.Node {
	n := ast.NewString([]byte(`<span class="math">` + template.HTMLEscapeString(string(marks)+string(source)+string(marks)) + `</span>`))
	n.SetCode(true) // which is written as it is
	return n
}
