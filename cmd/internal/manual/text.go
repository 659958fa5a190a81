package manual

import (
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// block is a part of a help text.
type block struct {
	// tag is the first column of an item; other blocks have none.
	tag string
	// lines are a paragraph, the second column of an item, or, if verbatim is set, lines
	// that stay as they are.
	lines    []string
	verbatim bool
	// follows is set if no empty line is before the block.
	follows bool
}

// text writes a help text: paragraphs, items of lists, and lines that stay as they are.
func (p *page) text(text string) {
	blocks := split(strings.Split(strings.Trim(text, "\n"), "\n"))
	for i, b := range blocks {
		compact := b.follows && i > 0 && b.tag != "" && blocks[i-1].tag != ""
		switch {
		case compact:
			p.printf(".PD 0\n.TP\n.PD\n\\fB%s\\fR", escape(b.tag))
		case b.tag != "":
			p.printf(".TP\n\\fB%s\\fR", escape(b.tag))
		case b.verbatim:
			p.printf(".PP\n.RS 4\n.nf")
		default:
			p.printf(".PP")
		}
		for _, l := range b.lines {
			p.printf("%s", escapeLine(l))
		}
		if b.verbatim {
			p.printf(".fi\n.RE")
		}
	}
}

// split finds the blocks of a text. Indented lines are items, such as "  0  the command
// succeeded", or stay unchanged. Lines below the second column of an item belong to it.
func split(lines []string) []block {
	var blocks []block
	last := &block{} // none yet
	column := 0      // of the item that has just ended, or 0
	empty := true
	add := func(b block) {
		b.follows = !empty
		blocks = append(blocks, b)
		last = &blocks[len(blocks)-1]
	}
	for i, l := range lines {
		indent := indentOf(l)
		rest := l[indent:]
		isItem, isVerbatim := last.tag != "", last.verbatim
		if !isItem || empty {
			column = 0
		}
		tag, desc, at := columns(lines[i:], column)
		switch {
		case rest == "":
			empty = true
			continue
		case column > 0 && indent >= column:
			last.lines = append(last.lines, rest)
		case tag != "":
			add(block{tag: tag, lines: desc})
			column = at
		case indent > 0 && isVerbatim && !empty:
			last.lines = append(last.lines, l[min(indent, 2):])
		case indent > 0:
			add(block{verbatim: true, lines: []string{l[min(indent, 2):]}})
		case !isItem && !isVerbatim && !empty:
			last.lines = append(last.lines, rest)
		default:
			add(block{lines: []string{rest}})
		}
		empty = false
	}
	return blocks
}

// columns reads the item that begins with the first of the lines: its tag, the description on
// the same line, if there is one, and the column of descriptions. The tag is empty if no item
// begins there. above is the column of the item above, or 0: one space before it is enough.
func columns(lines []string, above int) (tag string, desc []string, column int) {
	l, indent := lines[0], indentOf(lines[0])
	if indent == 0 {
		return "", nil, 0
	}
	if above > indent && len(l) > above && l[above-1] == ' ' && l[above] != ' ' {
		return strings.TrimSpace(l[:above]), []string{l[above:]}, above
	}
	if m := twoColumns().FindStringSubmatchIndex(l); m != nil {
		return l[m[2]:m[3]], []string{l[m[4]:]}, m[4]
	}
	const least = 4 // the second column is further to the right than an indented line
	if len(lines) > 1 && indentOf(lines[1]) >= indent+least {
		return l[indent:], nil, indentOf(lines[1])
	}
	return "", nil, 0
}

func indentOf(l string) int { return len(l) - len(strings.TrimLeft(l, " ")) }

var twoColumns = lazyregexp.New(`^ +(\S.*?) {2,}(\S.*)$`)

// escape makes a text appear unchanged, also when it is copied from a terminal.
func escape(text string) string {
	return strings.NewReplacer(
		`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`,
	).Replace(text)
}

// escapeLine is escape for a line of its own, which may not look like a request.
func escapeLine(text string) string {
	if strings.HasPrefix(text, ".") {
		return `\&` + escape(text)
	}
	return escape(text)
}
