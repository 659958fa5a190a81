package markup

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
type formulas struct {
	// noEnd is the key of a place in the text: no formula of a line ends before it.
	noEnd parser.ContextKey
}

// Trigger returns the character with which a formula begins.
func (formulas) Trigger() []byte { return []byte{'$'} }

// Parse reads a formula; nil if there is none.
func (f formulas) Parse(_ ast.Node, in text.Reader, pc parser.Context) ast.Node {
	line, at := in.Position()
	begin, _ := in.PeekLine()
	marks := []byte("$")
	if bytes.HasPrefix(begin, []byte("$$")) {
		marks = []byte("$$")
	} else if len(begin) < 2 || begin[1] == ' ' || begin[1] == '\n' {
		return nil
	}
	in.Advance(len(marks))
	var source []byte
	for len(source) < longestFormula {
		rest, here := in.PeekLine()
		if rest == nil {
			break
		}
		most, from := min(len(rest), longestFormula-len(source)), 0
		if before, ok := pc.Get(f.noEnd).(int); ok && len(marks) == 1 {
			from = max(0, before-here.Start)
		}
		if end := formulaEnd(source, rest, from, most, marks); end >= 0 {
			in.Advance(end + len(marks))
			return formulaNode(append(source, rest[:end]...), marks)
		}
		if len(marks) == 1 {
			pc.Set(f.noEnd, here.Start+most)
		}
		source = append(source, rest[:most]...)
		in.AdvanceLine()
	}
	in.SetPosition(line, at)
	return nil
}

// formulaEnd returns where in a part of a line a formula ends that began with before; -1 if it goes on.
func formulaEnd(before, line []byte, from, most int, marks []byte) int {
	blank := len(bytes.TrimSpace(before)) == 0
	for from < most {
		i := bytes.Index(line[from:most], marks)
		if i < 0 {
			return -1
		}
		end := from + i
		from = end + 1
		last := byte('\n')
		if end > 0 {
			last = line[end-1]
		}
		after := line[end+len(marks):]
		switch {
		case blank && len(bytes.TrimSpace(line[:end])) == 0, last == '\\':
		case len(marks) == 2:
			return end
		case last == ' ', len(after) > 0 && after[0] >= '0' && after[0] <= '9':
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
