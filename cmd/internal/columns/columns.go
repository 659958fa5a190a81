// Package columns lays out tables of text. It counts the columns that a terminal needs for a text, of which an East
// Asian character has two, and narrows a table to the width of a terminal.
//
// The rule for a table that is too wide: its widest columns are cut first, all to the same width, but none to less than
// eight columns. If that does not suffice, lines end at the edge of the terminal. An ellipsis marks each cut. No line
// wraps, so that a row stays a row.
//
// The texts have no escape sequences and no characters that steer a terminal: callers pass them through package
// termtext, and paint the cells of the finished table.
package columns

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// least is the width to which a column can be cut.
const least = 8

// gap is the space between two columns.
const gap = 2

// Width returns the number of columns in which a terminal shows a text. The text may be painted.
func Width(text string) int {
	if isPlain(text) {
		return len(text)
	}
	return ansi.StringWidth(text)
}

// isPlain reports whether a text has printable ASCII characters alone, of which each has a column. Most texts do, and finding
// the graphemes of others takes most of the time of a long table.
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// Cut returns the beginning of a text that fits into width columns; an ellipsis is its end if something is left out.
// Colours of a painted text end with it.
func Cut(text string, width int) string {
	if len(text) <= width && isPlain(text) {
		return text
	}
	return ansi.Truncate(text, max(width, 0), "…")
}

// Column is a column of a table.
type Column struct {
	Name string
	// Right justifies it, as numbers are.
	Right bool
}

// Table is a table to be laid out.
type Table struct {
	Columns []Column
	Rows    [][]string
	// Width is the width of the terminal, 0 for no limit.
	Width int
	// Paint paints the text of a cell, without the space around it; nil paints none.
	Paint func(row, column int, text string) string
}

// Layout is a table with the widths of its columns.
type Layout struct {
	// Widths are the widths of the columns.
	Widths []int
	// Total is the width of a line.
	Total int
	table Table
}

// Lay finds the widths of a table's columns.
func (t Table) Lay() Layout {
	l := Layout{Widths: make([]int, len(t.Columns)), table: t}
	for i, c := range t.Columns {
		l.Widths[i] = Width(c.Name)
		for _, row := range t.Rows {
			l.Widths[i] = max(l.Widths[i], Width(row[i]))
		}
	}
	gaps := gap * max(len(t.Columns)-1, 0)
	if t.Width > 0 {
		narrow(l.Widths, t.Width-gaps)
	}
	l.Total = gaps
	for _, w := range l.Widths {
		l.Total += w
	}
	if t.Width > 0 {
		l.Total = min(l.Total, t.Width)
	}
	return l
}

// narrow cuts the widest columns to one width, with which all of them fit into room.
func narrow(widths []int, room int) {
	sum := func(most int) (n int) {
		for _, w := range widths {
			n += min(w, most)
		}
		return n
	}
	most := least
	for _, w := range widths {
		most = max(most, w)
	}
	for most > least && sum(most) > room {
		most--
	}
	left := room - sum(most) // the columns that the common width leaves free
	for i, w := range widths {
		widths[i] = min(w, most)
		if w > most && left > 0 {
			widths[i]++
			left--
		}
	}
}

// Head returns the line of the columns' names.
func (l Layout) Head() string {
	names := make([]string, len(l.table.Columns))
	for i, c := range l.table.Columns {
		names[i] = c.Name
	}
	return l.line(names, func(_ int, text string) string { return text })
}

// Row returns the line of a row.
func (l Layout) Row(n int) string {
	return l.line(l.table.Rows[n], func(column int, text string) string {
		if l.table.Paint == nil {
			return text
		}
		return l.table.Paint(n, column, text)
	})
}

// line returns the line of some cells. Space at its end is kept, as it has no effect on a terminal that is wide enough.
func (l Layout) line(cells []string, paint func(column int, text string) string) string {
	out := make([]string, len(cells))
	for i, text := range cells {
		text = Cut(text, l.Widths[i])
		space := strings.Repeat(" ", l.Widths[i]-Width(text))
		if l.table.Columns[i].Right {
			out[i] = space + paint(i, text)
		} else {
			out[i] = paint(i, text) + space
		}
	}
	text := strings.Join(out, strings.Repeat(" ", gap))
	if l.table.Width > 0 {
		return Cut(text, l.table.Width)
	}
	return text
}
