package livetable

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// ErrInterrupted is the error of a table that Ctrl-C has ended.
var ErrInterrupted = errors.New("interrupted")

// help is the text of the key ?. The keys are those of htop and k9s where these agree.
const help = `
  up, down, pgup, pgdown, home, end    move
  space                                mark a bundle, or unmark it
  enter, o                             its standard output, as it grows
  e                                    its standard error
  i                                    all about it, as cl info shows it
  k, F9                                kill the marked bundles, or this one
  s, S                                 sort by the next column, or backward
  /                                    show only rows with a text; esc: all
  r                                    ask the server now
  q, esc                               back; in the table, q ends cl top
`

// press takes a key.
func (m *Model) press(key tea.KeyPressMsg) tea.Cmd {
	name := key.String()
	if name == "ctrl+c" {
		m.err = ErrInterrupted
		return tea.Quit
	}
	switch m.mode {
	case modeFilter:
		m.pressInFilter(name, key.Key().Text)
		return nil
	case modeQuestion:
		return m.answer(name)
	case modePage:
		return m.pressInPage(name)
	case modeHelp:
		m.mode = modeTable
		return nil
	case modeTable:
	}
	m.note = ""
	return m.pressInTable(name)
}

func (m *Model) pressInTable(key string) tea.Cmd {
	switch key {
	case "q":
		return tea.Quit
	case "?", "h", "f1":
		m.mode = modeHelp
	case "/":
		m.mode = modeFilter
	case "esc":
		m.filter, m.marked = "", map[string]bool{}
		m.arrange()
	case "s":
		m.sortBy++
		if m.sortBy == len(m.columns) {
			m.sortBy = -1
		}
		m.arrange()
	case "S":
		m.backward = !m.backward
		m.arrange()
	case "r":
		return m.ask()
	case "space":
		m.mark()
	case "k", "f9":
		m.askToKill()
	case "enter", "o":
		return m.open("stdout", m.source.Output)
	case "e":
		return m.open("stderr", m.source.Output)
	case "i":
		return m.open("", func(uuid, _ string) (string, error) { return m.source.Info(uuid) })
	default:
		m.move(key)
	}
	return nil
}

// move moves the cursor.
func (m *Model) move(key string) {
	to := moved(key, m.place(), m.room(), len(m.visible)-1)
	if to < 0 {
		return
	}
	m.selected = m.visible[to].UUID
	m.scroll()
}

// moved is the place to which a key moves, between 0 and last.
func moved(key string, place, room, last int) int {
	switch key {
	case "up":
		place--
	case "down":
		place++
	case "pgup", "ctrl+b":
		place -= room
	case "pgdown", "ctrl+f":
		place += room
	case "home", "g":
		place = 0
	case "end", "G":
		place = last
	}
	return min(max(place, 0), last)
}

func (m *Model) mark() {
	if m.selected == "" {
		return
	}
	if m.marked[m.selected] {
		delete(m.marked, m.selected)
	} else {
		m.marked[m.selected] = true
	}
	m.move("down")
}

// pressInFilter edits the text by which rows are filtered.
func (m *Model) pressInFilter(key, text string) {
	switch key {
	case "enter":
		m.mode = modeTable
	case "esc":
		m.mode, m.filter = modeTable, ""
	case "backspace":
		letters := []rune(m.filter)
		m.filter = string(letters[:max(len(letters)-1, 0)])
	default:
		m.filter += text
	}
	m.arrange()
}

// askToKill asks whether the marked bundles, or the one under the cursor, shall be killed.
func (m *Model) askToKill() {
	m.question = slices.DeleteFunc(slices.Clone(m.rows), func(r Row) bool {
		return r.ended() || !m.marked[r.UUID] && (len(m.marked) > 0 || r.UUID != m.selected)
	})
	if len(m.question) == 0 {
		m.note = "No bundle to kill: it has ended."
		return
	}
	m.mode = modeQuestion
}

// killQuestion is the question to the user.
func (m *Model) killQuestion() string {
	first := m.question[0]
	if len(m.question) == 1 {
		return fmt.Sprintf("Kill %s (%s), which is %s? y or n", first.Name, first.UUID[:min(8, len(first.UUID))], first.State)
	}
	return fmt.Sprintf("Kill %d bundles (%s, …)? y or n", len(m.question), first.Name)
}

func (m *Model) answer(key string) tea.Cmd {
	m.mode = modeTable
	if key != "y" && key != "Y" {
		m.note = "Nothing is killed."
		return nil
	}
	m.note = "Killing…"
	list := m.question
	m.question, m.marked = nil, map[string]bool{}
	return func() tea.Msg {
		var msg killedMsg
		for _, r := range list {
			if err := m.source.Kill(r.UUID); err != nil {
				msg.err = fmt.Errorf("%s: %w", r.Name, err)
				continue
			}
			msg.killed++
		}
		return msg
	}
}

func killedText(msg killedMsg) string {
	switch {
	case msg.err != nil:
		return "Not killed: " + strings.TrimSuffix(msg.err.Error(), ".") + "."
	case msg.killed == 1:
		return "Its kill is requested."
	}
	return fmt.Sprintf("The kills of %d bundles are requested.", msg.killed)
}

// open opens a page about the bundle under the cursor.
func (m *Model) open(file string, load func(uuid, file string) (string, error)) tea.Cmd {
	at := m.row(m.selected)
	if at < 0 {
		return nil
	}
	r := m.visible[at]
	m.mode = modePage
	m.page = page{title: strings.TrimRight(r.Name+"("+r.UUID+")/"+file, "/"), follow: file != ""}
	m.page.load = func() (string, error) { return load(r.UUID, file) }
	return m.ask()
}

func (m *Model) pressInPage(key string) tea.Cmd {
	switch key {
	case "q", "esc", "left":
		m.mode, m.page = modeTable, page{}
		return m.ask()
	}
	last := max(len(m.wrapped())-m.pageRoom(), 0)
	place := m.page.top
	if m.page.follow {
		place = last
	}
	m.page.top = moved(key, place, m.pageRoom(), last)
	m.page.follow = m.page.top == last && (m.page.follow || key == "end" || key == "G" || key == "down" || key == "pgdown")
	return nil
}
