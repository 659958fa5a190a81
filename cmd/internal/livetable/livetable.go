// Package livetable is a table of bundles on a terminal that shows how they change, with keys to look at one of them and
// to kill some. Its model (Model) is pure: messages come in, and a screen and commands go out. A Source does the commands'
// work.
//
// One question to the server is under way at a time: for the rows, or for the text that is shown in their place. The next
// one waits for a pause after the answer, which Source.Pause chooses.
package livetable

import (
	"cmp"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/cl-slurm/cl-slurm/cmd/internal/colour"
	"github.com/cl-slurm/cl-slurm/cmd/internal/tally"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// Row is a bundle.
type Row struct {
	UUID, Name string
	State      codalab.State
	// Cells are its texts, one for each column, without characters that steer a terminal.
	Cells []string
	// Keys are the values of the cells by which rows are sorted: numbers (float64) or texts.
	Keys []any
	// Details is a sentence about its wait or its failure.
	Details string
	// Took is the time for which its command has run.
	Took time.Duration
	// Created is the time of its creation, in Unix seconds.
	Created int64
}

// ended reports whether a row does not change any more.
func (r Row) ended() bool { return r.State.Final() || r.State == tally.Removed }

// Source does what the keys ask for. Its functions may block.
type Source struct {
	// Rows returns the bundles.
	Rows func() ([]Row, error)
	// Kill kills a bundle.
	Kill func(uuid string) error
	// Info returns all about a bundle, and Output the end of a file of it; both as lines without characters that steer
	// a terminal.
	Info   func(uuid string) (string, error)
	Output func(uuid, file string) (string, error)
	// Pause is the time between an answer that took so long and the next question, after some failures in a row.
	Pause func(took time.Duration, failures int) time.Duration
	// Fatal reports whether no further question will be answered.
	Fatal func(error) bool
	Now   func() time.Time
}

// Model is the table. New makes one.
type Model struct {
	source  Source
	palette colour.Palette
	title   string
	// columns are the names of the cells.
	columns []string
	right   []bool

	width, height int
	rows          []Row // all of them
	visible       []Row // those that the filter lets through, sorted
	widths        layout

	selected string // the uuid of the row with the cursor
	top      int    // the first visible row on the screen
	marked   map[string]bool

	sortBy   int // a column, or -1 for the order of states
	backward bool
	filter   string

	mode     mode
	page     page
	question []Row  // the bundles to kill, while their user is asked
	note     string // what the last key has done

	asking, again bool
	generation    int // of the pause: only the newest one ends with a question
	loaded        bool
	failures      int
	failure       error
	answered      time.Time
	err           error // ends the program
}

// mode is what the keys mean.
type mode int

const (
	modeTable mode = iota
	modeFilter
	modeQuestion
	modePage
	modeHelp
)

// page is a text in place of the table.
type page struct {
	title string
	load  func() (string, error)
	lines []string // as they come
	top   int
	// follow keeps the end of the text on the screen.
	follow bool
	err    error
}

// New returns a table with these columns. Those of numbers are justified right.
func New(source Source, title string, columns []string, right []bool, palette colour.Palette) *Model {
	return &Model{source: source, title: title, columns: columns, right: right, palette: palette, sortBy: -1, marked: map[string]bool{}}
}

// Err returns the error that has ended the table, nil if its user has.
func (m *Model) Err() error { return m.err }

// The messages of commands.
type (
	rowsMsg struct {
		rows []Row
		err  error
		took time.Duration
	}
	textMsg struct {
		title string
		text  string
		err   error
		took  time.Duration
	}
	killedMsg struct {
		killed int
		err    error
	}
	pauseMsg struct{ generation int }
)

// Init asks for the rows.
func (m *Model) Init() tea.Cmd { return m.ask() }

// ask asks for the rows, or for the text of the page.
func (m *Model) ask() tea.Cmd {
	if m.asking {
		m.again = true
		return nil
	}
	m.asking = true
	m.generation++
	begun := m.source.Now()
	if m.mode == modePage {
		load, title := m.page.load, m.page.title
		return func() tea.Msg {
			text, err := load()
			return textMsg{title, text, err, m.source.Now().Sub(begun)}
		}
	}
	return func() tea.Msg {
		rows, err := m.source.Rows()
		return rowsMsg{rows, err, m.source.Now().Sub(begun)}
	}
}

// next asks again after a pause, or at once if a key asked meanwhile.
func (m *Model) next(took time.Duration) tea.Cmd {
	m.asking = false
	if m.again {
		m.again = false
		return m.ask()
	}
	generation := m.generation
	return tea.Tick(m.source.Pause(took, m.failures), func(time.Time) tea.Msg { return pauseMsg{generation} })
}

// Update takes a message.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.arrange()
	case rowsMsg:
		return m, m.takeRows(msg)
	case textMsg:
		return m, m.takeText(msg)
	case killedMsg:
		m.note = killedText(msg)
		return m, m.ask()
	case pauseMsg:
		if msg.generation == m.generation && !m.asking {
			return m, m.ask()
		}
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

func (m *Model) takeRows(msg rowsMsg) tea.Cmd {
	switch {
	case msg.err != nil && (m.source.Fatal(msg.err) || !m.loaded):
		m.err = msg.err
		return tea.Quit
	case msg.err != nil:
		m.failures++
		m.failure = msg.err
	default:
		m.failures, m.failure, m.loaded = 0, nil, true
		m.answered = m.source.Now()
		m.rows = msg.rows
		m.arrange()
	}
	return m.next(msg.took)
}

func (m *Model) takeText(msg textMsg) tea.Cmd {
	if m.mode != modePage || msg.title != m.page.title { // the user has left it
		return m.next(0)
	}
	m.page.err = msg.err
	if msg.err == nil {
		m.page.lines = strings.Split(strings.TrimRight(msg.text, "\n"), "\n")
		m.answered = m.source.Now()
	}
	return m.next(msg.took)
}

// arrange filters and sorts the rows, and keeps the cursor on its bundle.
func (m *Model) arrange() {
	place := m.place()
	m.visible = slices.DeleteFunc(slices.Clone(m.rows), func(r Row) bool { return !matches(r, m.filter) })
	slices.SortStableFunc(m.visible, func(a, b Row) int {
		n := m.compare(a, b)
		if m.backward {
			n = -n
		}
		return n
	})
	m.widths = m.measure()
	if m.row(m.selected) < 0 { // the bundle is gone: the cursor stays at its place
		m.selected = ""
		if len(m.visible) > 0 {
			m.selected = m.visible[min(place, len(m.visible)-1)].UUID
		}
	}
	m.scroll()
}

func matches(r Row, filter string) bool {
	filter = strings.ToLower(filter)
	return strings.Contains(strings.ToLower(strings.Join(r.Cells, "\x00")), filter) || strings.Contains(r.UUID, filter)
}

// compare compares rows by the column to sort by. Rows without a value come last, whatever the direction, and the newest
// first among equal ones.
func (m *Model) compare(a, b Row) int {
	if m.sortBy < 0 {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), cmp.Compare(b.Created, a.Created))
	}
	return cmp.Or(compareValues(a.Keys[m.sortBy], b.Keys[m.sortBy]), cmp.Compare(b.Created, a.Created))
}

// rank orders states: first those that run, then those that wait, then those that have ended.
func rank(s codalab.State) int {
	var t tally.Tally
	t.Add(s)
	switch {
	case t.Running+t.Offline > 0:
		return 0
	case t.Waiting > 0:
		return 1
	}
	return 2
}

// compareValues compares numbers with numbers and texts with texts; numbers come before texts.
func compareValues(a, b any) int {
	x, isNumber := a.(float64)
	y, isAlso := b.(float64)
	switch {
	case isNumber && isAlso:
		return cmp.Compare(x, y)
	case isNumber:
		return -1
	case isAlso:
		return 1
	}
	s, _ := a.(string)
	t, _ := b.(string)
	return cmp.Compare(s, t)
}

// row returns the place of a bundle among the visible ones, -1 if it is not there.
func (m *Model) row(uuid string) int {
	return slices.IndexFunc(m.visible, func(r Row) bool { return r.UUID == uuid })
}

// place is the place of the cursor.
func (m *Model) place() int { return max(m.row(m.selected), 0) }

// scroll moves the rows so that the cursor is on the screen.
func (m *Model) scroll() {
	room, place := max(m.room(), 1), m.place()
	m.top = min(m.top, max(len(m.visible)-room, 0), place)
	m.top = max(m.top, place-room+1)
}
