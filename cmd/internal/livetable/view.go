package livetable

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/cl-slurm/cl-slurm/cmd/internal/columns"
	"github.com/cl-slurm/cl-slurm/cmd/internal/tally"
)

// The lines beside the rows: the counts, the heads of the columns, the sentence about the bundle under the cursor, and the
// keys. A low screen has no sentence.
const (
	otherLines = 4
	lowScreen  = 8
)

// room is the number of rows that the screen has.
func (m *Model) room() int {
	if m.height < lowScreen {
		return max(m.height-otherLines+1, 0)
	}
	return m.height - otherLines
}

// pageRoom is the number of lines that a page has.
func (m *Model) pageRoom() int { return max(m.height-2, 1) }

// layout has the widths of the columns for the visible rows.
type layout struct {
	table columns.Table
	laid  columns.Layout
}

// measure lays the visible rows out.
func (m *Model) measure() layout {
	t := columns.Table{Width: max(m.width-2, 1)}
	for i, name := range m.columns {
		if i == m.sortBy {
			name += map[bool]string{false: "↑", true: "↓"}[m.backward]
		}
		t.Columns = append(t.Columns, columns.Column{Name: name, Right: m.right[i]})
	}
	for _, r := range m.visible {
		t.Rows = append(t.Rows, r.Cells)
	}
	t.Paint = func(row, column int, text string) string {
		r := m.visible[row]
		if m.columns[column] != "state" || r.UUID == m.selected {
			return text
		}
		return m.palette.State(r.State, text)
	}
	return layout{t, t.Lay()}
}

// View draws the screen.
func (m *Model) View() tea.View {
	var lines []string
	switch {
	case m.width <= 0 || m.height <= 0:
	case m.mode == modePage:
		lines = m.pageLines()
	case m.mode == modeHelp:
		lines = append([]string{m.palette.Bold("The keys of cl top")}, strings.Split(strings.Trim(help, "\n"), "\n")...)
	default:
		lines = m.tableLines()
	}
	lines = lines[:min(len(lines), max(m.height, 0))]
	for i, line := range lines {
		lines[i] = columns.Cut(line, m.width)
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	return v
}

func (m *Model) tableLines() []string {
	lines := []string{m.status()}
	if !m.loaded {
		return append(lines, "Asking the server…")
	}
	lines = append(lines, "  "+m.palette.Bold(m.widths.laid.Head()))
	for i := m.top; i < min(m.top+m.room(), len(m.visible)); i++ {
		lines = append(lines, m.rowLine(i))
	}
	if len(m.visible) == 0 {
		lines = append(lines, m.nothing())
	}
	for len(lines) < 2+m.room() {
		lines = append(lines, "")
	}
	if m.height >= lowScreen {
		lines = append(lines, m.palette.Faint(m.details()))
	}
	return append(lines, m.lastLine())
}

// nothing says why there are no rows.
func (m *Model) nothing() string {
	if m.filter != "" && len(m.rows) > 0 {
		return "  No row has this text; esc shows all."
	}
	return "  No bundles."
}

// rowLine is the line of a visible row. The one under the cursor is in reverse video, and has a mark, too.
func (m *Model) rowLine(i int) string {
	r := m.visible[i]
	mark := " "
	if m.marked[r.UUID] {
		mark = "*"
	}
	if r.UUID == m.selected {
		return "\x1b[7m>" + mark + m.widths.laid.Row(i) + "\x1b[0m"
	}
	return " " + mark + m.widths.laid.Row(i)
}

// status is the first line: the counts, or the failure of the server.
func (m *Model) status() string {
	if m.failures > 0 {
		away := m.source.Now().Sub(m.answered).Round(time.Second)
		return fmt.Sprintf("The server has not answered for %s, since %s.", away, m.answered.Local().Format(time.TimeOnly))
	}
	if !m.loaded {
		return m.title
	}
	var t tally.Tally
	runs := make([]tally.Run, 0, len(m.rows))
	for _, r := range m.rows {
		t.Add(r.State)
		runs = append(runs, tally.Run{State: r.State, Took: r.Took})
	}
	text := m.answered.Local().Format(time.TimeOnly) + "  " + t.Text(m.palette)
	if left, ok := tally.Left(runs); ok {
		text += "; " + tally.About(left)
	}
	return text
}

// details is the sentence about the bundle under the cursor.
func (m *Model) details() string {
	i := m.row(m.selected)
	if i < 0 {
		return ""
	}
	return m.visible[i].Details
}

// lastLine is the question, the filter, what the last key has done, or the keys.
func (m *Model) lastLine() string {
	switch {
	case m.mode == modeQuestion:
		return m.palette.Bold(m.killQuestion())
	case m.mode == modeFilter:
		return "/" + m.filter + "_"
	case m.note != "":
		return m.note
	}
	keys := "?: help  o: output  i: info  k: kill  s: sort  /: filter  q: quit"
	if m.filter != "" {
		keys = "/" + m.filter + "  (esc: all)  " + keys
	}
	return keys
}

// pageLines are the lines of a page.
func (m *Model) pageLines() []string {
	head := m.palette.Bold(m.page.title)
	if m.page.err != nil {
		head += ": " + m.page.err.Error()
	} else if m.page.lines == nil {
		head += ": asking the server…"
	}
	all := m.wrapped()
	room := m.pageRoom()
	top := min(m.page.top, max(len(all)-room, 0))
	if m.page.follow {
		top = max(len(all)-room, 0)
	}
	lines := append([]string{head}, all[top:min(top+room, len(all))]...)
	for len(lines) < 1+room {
		lines = append(lines, "")
	}
	return append(lines, "q: back  pgup, pgdown, home, end: move")
}

// wrapped are the lines of a page, each no wider than the screen.
func (m *Model) wrapped() []string {
	if m.page.lines == nil {
		return nil
	}
	var all []string
	for _, line := range m.page.lines {
		line = strings.ReplaceAll(line, "\t", "        ")
		all = append(all, strings.Split(ansi.Hardwrap(line, max(m.width, 1), true), "\n")...)
	}
	return all
}
