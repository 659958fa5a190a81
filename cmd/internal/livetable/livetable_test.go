package livetable_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/livetable"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// table is a model whose commands run at once, and whose pauses end when the test says so.
type table struct {
	t      *testing.T
	m      *livetable.Model
	now    time.Time
	rows   []livetable.Row
	err    error
	asked  int
	killed []string
	refuse error
	paused tea.Cmd
	quit   bool
}

var errDenied = errors.New("no such login")

func row(n int, name string, state codalab.State, minutes float64) livetable.Row {
	return livetable.Row{
		UUID: fmt.Sprintf("0x%032d", n), Name: name, State: state, Created: int64(n), Details: "about " + name,
		Cells: []string{name, string(state), fmt.Sprint(minutes)}, Keys: []any{name, string(state), minutes},
	}
}

// open opens a table of some rows in a terminal of 60 columns and 10 rows.
func open(t *testing.T, rows ...livetable.Row) *table {
	t.Helper()
	w := &table{t: t, now: time.Date(2026, 11, 28, 9, 0, 0, 0, time.Local), rows: rows} //nolint:gosmopolitan // the clock on the screen is local
	w.m = livetable.New(livetable.Source{
		Rows: func() ([]livetable.Row, error) { w.asked++; return w.rows, w.err },
		Kill: func(uuid string) error { w.killed = append(w.killed, uuid); return w.refuse },
		Info: func(uuid string) (string, error) { return "all about " + uuid, nil },
		Output: func(_, file string) (string, error) {
			w.asked++
			return file + " 1\n学習率\tx\n" + strings.Repeat("line\n", 20) + "last\n", w.err
		},
		Pause: func(time.Duration, int) time.Duration { return 0 },
		Fatal: func(err error) bool { return errors.Is(err, errDenied) },
		Now:   func() time.Time { return w.now },
	}, "cl top", []string{"name", "state", "time"}, []bool{false, false, true}, false)
	w.send(tea.WindowSizeMsg{Width: 60, Height: 10})
	w.do(w.m.Init())
	return w
}

// send sends a message, and runs the command that comes of it. It keeps a pause.
func (w *table) send(msg tea.Msg) {
	_, cmd := w.m.Update(msg)
	w.do(cmd)
}

func (w *table) do(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	msg := cmd()
	switch {
	case msg == tea.Quit():
		w.quit = true
	case strings.HasSuffix(fmt.Sprintf("%T", msg), "pauseMsg"):
		w.paused = func() tea.Msg { return msg }
	default:
		w.send(msg)
	}
}

// wait lets the pause end.
func (w *table) wait() { w.send(w.paused()) }

// press presses keys: letters, or names in <>.
func (w *table) press(keys string) {
	named := map[string]tea.Key{
		"<up>": {Code: tea.KeyUp}, "<down>": {Code: tea.KeyDown}, "<pgdown>": {Code: tea.KeyPgDown}, "<pgup>": {Code: tea.KeyPgUp},
		"<enter>": {Code: tea.KeyEnter}, "<esc>": {Code: tea.KeyEscape}, "<end>": {Code: tea.KeyEnd}, "<home>": {Code: tea.KeyHome},
		"<backspace>": {Code: tea.KeyBackspace}, "<ctrl+c>": {Code: 'c', Mod: tea.ModCtrl}, " ": {Code: tea.KeySpace, Text: " "},
	}
	for keys != "" {
		name := string([]rune(keys)[0])
		if strings.HasPrefix(keys, "<") {
			name = keys[:strings.Index(keys, ">")+1]
		}
		keys = keys[len(name):]
		key, ok := named[name]
		if !ok {
			key = tea.Key{Code: []rune(name)[0], Text: name}
		}
		w.send(tea.KeyPressMsg(key))
	}
}

// screen is what the user sees.
func (w *table) screen() []string {
	lines := strings.Split(ansi.Strip(w.m.View().Content), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

func (w *table) shows(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.screen()); diff != "" {
		w.t.Errorf("the screen (-want +got):\n%s", diff)
	}
}

func (w *table) showsLine(n int, want string) {
	w.t.Helper()
	lines := w.screen()
	if n < 0 {
		n += len(lines)
	}
	if lines[n] != want {
		w.t.Errorf("line %d is %q, want %q", n, lines[n], want)
	}
}

const keysLine = "?: help  o: output  i: info  k: kill  s: sort  /: filter  q…"

func TestRowsThatRunComeFirstAndTheCursorStaysOnItsBundle(t *testing.T) {
	t.Parallel()
	w := open(t, row(1, "a", "ready", 3), row(2, "b", "staged", 0), row(3, "c", "running", 2), row(4, "d", "running", 1))
	w.shows(
		"09:00:00  1 of 4 ready, 2 running, 1 waiting",
		"  name  state    time",
		"> d     running     1",
		"  c     running     2",
		"  b     staged      0",
		"  a     ready       3",
		"", "",
		"about d", keysLine,
	)
	w.press("<down><down>")
	w.rows = []livetable.Row{row(1, "a", "ready", 3), row(2, "b", "running", 0), row(3, "c", "ready", 2), row(5, "e", "staged", 1)}
	w.now = w.now.Add(time.Minute)
	w.wait()
	w.shows(
		"09:01:00  2 of 4 ready, 1 running, 1 waiting",
		"  name  state    time",
		"> b     running     0",
		"  e     staged      1",
		"  c     ready       2",
		"  a     ready       3",
		"", "",
		"about b", keysLine,
	)
	w.rows = w.rows[:1]
	w.wait()
	w.showsLine(2, "> a     ready     3")
}

func TestRowsAreSortedByAnyColumn(t *testing.T) {
	t.Parallel()
	w := open(t, row(1, "b", "ready", 10), row(2, "a", "ready", 9), row(3, "c", "running", 100))
	order := func() (names string) {
		for _, line := range w.screen()[2:5] {
			names += line[2:3]
		}
		return names
	}
	var got []string
	for range 4 {
		got = append(got, order())
		w.press("S")
		got = append(got, order())
		w.press("Ss")
	}
	if diff := cmp.Diff([]string{"cab", "bac", "abc", "cba", "abc", "cba", "abc", "cba"}, got); diff != "" {
		t.Error(diff)
	}
	w.press("ss")
	w.showsLine(1, "  name  state↑   time")
}

func TestFilterKeepsRowsWithATextOfAnyCase(t *testing.T) {
	t.Parallel()
	w := open(t, row(1, "Train", "ready", 3), row(2, "eval", "failed", 0))
	w.press("/tRax<backspace>")
	w.showsLine(2, "> Train  ready     3")
	w.showsLine(3, "")
	w.showsLine(-1, "/tRa_")
	w.press("<enter>/qqqq<enter>")
	w.showsLine(2, "  No row has this text; esc shows all.")
	w.press("k")
	w.showsLine(-1, "No bundle to kill: it has ended.")
	w.press("oei<esc>")
	w.showsLine(2, "> eval   failed     0")
	w.showsLine(3, "  Train  ready      3")
}

func TestNothingIsKilledUnasked(t *testing.T) {
	t.Parallel()
	w := open(t, row(1, "a", "running", 0), row(2, "b", "running", 0), row(3, "c", "ready", 0))
	w.press("k")
	w.showsLine(-1, "Kill b (0x000000), which is running? y or n")
	w.press("<enter>")
	w.showsLine(-1, "Nothing is killed.")
	if w.killed != nil {
		t.Fatalf("%v is killed", w.killed)
	}
	before := w.asked
	w.press("  kY") // both that run
	if want := []string{w.rows[0].UUID, w.rows[1].UUID}; !slices.Equal(w.killed, want) {
		t.Errorf("%v is killed, want %v", w.killed, want)
	}
	w.showsLine(-1, "The kills of 2 bundles are requested.")
	if w.asked == before {
		t.Error("the server is not asked after a kill")
	}
	w.refuse = errors.New("you may not kill it")
	w.press("gky")
	w.showsLine(-1, "Not killed: b: you may not kill it.")
	w.press("Gk")
	w.showsLine(-1, "No bundle to kill: it has ended.")
}

func TestOutputIsFollowedInPlaceOfTheRows(t *testing.T) {
	t.Parallel()
	w := open(t, row(1, "a", "running", 0))
	w.press("o")
	w.showsLine(0, "a(0x00000000000000000000000000000001)/stdout")
	w.showsLine(-2, "last")
	before := w.asked
	w.wait()
	if w.asked != before+1 {
		t.Errorf("%d questions while the output is shown, want 1", w.asked-before)
	}
	w.press("<home>")
	w.showsLine(1, "stdout 1")
	w.showsLine(2, "学習率        x")
	w.wait()
	w.showsLine(1, "stdout 1") // it stays where the user reads
	w.press("<end>")
	w.showsLine(-2, "last")
	w.send(tea.WindowSizeMsg{Width: 4, Height: 10})
	w.press("<home>")
	w.showsLine(1, "stdo")
	w.showsLine(2, "ut 1")
	w.showsLine(3, "学習")
	w.send(tea.WindowSizeMsg{Width: 60, Height: 10})
	w.err = errors.New("the worker does not answer")
	w.wait()
	w.showsLine(0, "a(0x00000000000000000000000000000001)/stdout: the worker do…")
	w.err = nil
	w.press("qi")
	w.showsLine(1, "all about 0x00000000000000000000000000000001")
	w.press("<esc>?")
	w.showsLine(0, "The keys of cl top")
	w.press("x")
	w.showsLine(2, "> a     running     0")
}

func TestOutageIsShownAndEnds(t *testing.T) {
	t.Parallel()
	w := open(t, row(1, "a", "running", 0))
	w.err = errors.New("connection refused")
	w.now = w.now.Add(90 * time.Second)
	w.wait()
	w.showsLine(0, "The server has not answered for 1m30s, since 09:00:00.")
	w.showsLine(2, "> a     running     0")
	w.err = nil
	w.wait()
	w.showsLine(0, "09:01:30  0 of 1 ready, 1 running")
	w.err = errDenied
	w.wait()
	if !w.quit || !errors.Is(w.m.Err(), errDenied) {
		t.Errorf("a refused login: quit %v, %v", w.quit, w.m.Err())
	}
}

func TestFirstFailureEndsTheTable(t *testing.T) {
	t.Parallel()
	w := &table{t: t}
	w.m = livetable.New(livetable.Source{
		Rows:  func() ([]livetable.Row, error) { return nil, errors.New("connection refused") },
		Fatal: func(error) bool { return false }, Now: time.Now,
	}, "cl top", nil, nil, false)
	w.do(w.m.Init())
	if !w.quit || w.m.Err() == nil {
		t.Errorf("quit %v, %v", w.quit, w.m.Err())
	}
}

func TestKeysEndTheTable(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.showsLine(2, "  No bundles.")
	w.press("<up><down><pgup><pgdown><home><end> kSsior")
	w.press("q")
	if !w.quit || w.m.Err() != nil {
		t.Errorf("q: quit %v, %v", w.quit, w.m.Err())
	}
	w = open(t, row(1, "a", "running", 0))
	w.press("/<ctrl+c>")
	if !w.quit || !errors.Is(w.m.Err(), livetable.ErrInterrupted) {
		t.Errorf("Ctrl-C: quit %v, %v", w.quit, w.m.Err())
	}
}

// No screen has more lines or columns than the terminal, whatever its size and whatever is shown.
func TestEverySizeOfATerminalWillDo(t *testing.T) {
	t.Parallel()
	rows := make([]livetable.Row, 30)
	for i := range rows {
		rows[i] = row(i, fmt.Sprintf("学習率%d", i), "running", float64(i))
	}
	w := open(t, rows...)
	for _, keys := range []string{"", "<end>", "<home>k", "n?", "xo", "<home>", "q/学", "<enter><esc>"} {
		w.press(keys)
		for width := range 40 {
			for height := range 14 {
				w.send(tea.WindowSizeMsg{Width: width, Height: height})
				lines := w.screen()
				if len(lines) > max(height, 1) {
					t.Fatalf("%q: %d lines in %d", keys, len(lines), height)
				}
				for _, line := range lines {
					if ansi.StringWidth(line) > width {
						t.Fatalf("%q: %q in %d columns", keys, line, width)
					}
				}
			}
		}
		w.send(tea.WindowSizeMsg{Width: 60, Height: 10})
	}
}
