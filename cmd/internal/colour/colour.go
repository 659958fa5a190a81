// Package colour decides whether a program colours its output, and with which colours it shows states of bundles.
//
// The colours are the eight of every terminal, so that they fit the user's own theme. No text has its meaning from its
// colour alone.
package colour

import (
	"fmt"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// When is the value of the flag --color.
type When string

// The values.
const (
	Auto   When = "auto"
	Always When = "always"
	Never  When = "never"
)

// Values are the values of the flag.
func Values() []string { return []string{string(Auto), string(Always), string(Never)} }

// String is the flag's value.
func (w *When) String() string { return string(*w) }

// Type is the placeholder of the value in the help.
func (w *When) Type() string { return "when" }

// Set is for pflag.
func (w *When) Set(text string) error {
	switch *w = When(text); *w {
	case Auto, Always, Never:
		return nil
	}
	return fmt.Errorf("auto, always or never, not %q", text)
}

// Palette paints texts, or leaves them as they are if it is false.
type Palette bool

// Decide returns the palette for a stream. The flag comes first, then NO_COLOR (no-color.org), then CLICOLOR_FORCE and
// CLICOLOR (bixense.com/clicolors), and else a terminal that knows colours gets them.
func Decide(flag When, getenv func(string) string, terminal bool) Palette {
	force := getenv("CLICOLOR_FORCE")
	switch {
	case flag == Always:
		return true
	case flag == Never, getenv("NO_COLOR") != "":
		return false
	case force != "" && force != "0":
		return true
	case getenv("CLICOLOR") == "0":
		return false
	}
	return Palette(terminal && !Dumb(getenv))
}

// Dumb reports whether the terminal of a process knows no commands: it shows them as text. Consoles of Windows have no
// TERM.
func Dumb(getenv func(string) string) bool {
	name := getenv("TERM")
	return name == "dumb" || name == "" && needsTerm
}

// The parameters of SGR (ECMA-48, 8.3.117).
const (
	bold    = "1"
	faint   = "2"
	red     = "31"
	green   = "32"
	yellow  = "33"
	magenta = "35"
	cyan    = "36"
)

// Bold paints a heading.
func (p Palette) Bold(text string) string { return p.paint(bold, text) }

// Faint paints what matters less.
func (p Palette) Faint(text string) string { return p.paint(faint, text) }

// Removed paints what only the first of two things has.
func (p Palette) Removed(text string) string { return p.paint(red, text) }

// Added paints what only the second of two things has.
func (p Palette) Added(text string) string { return p.paint(green, text) }

// Changed paints what differs in two things.
func (p Palette) Changed(text string) string { return p.paint(yellow, text) }

// State paints a text with the colour of a state. Unknown states have none.
func (p Palette) State(state codalab.State, text string) string {
	switch state {
	case codalab.StateReady:
		return p.paint(green, text)
	case codalab.StateFailed:
		return p.paint(red, text)
	case codalab.StateKilled, codalab.StateWorkerOffline:
		return p.paint(magenta, text)
	case codalab.StateRunning, codalab.StateFinalizing:
		return p.paint(cyan, text)
	case codalab.StateUploading, codalab.StateCreated, codalab.StateStaged, codalab.StateMaking, codalab.StateStarting, codalab.StatePreparing:
		return p.paint(yellow, text)
	}
	return text
}

func (p Palette) paint(parameter, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + parameter + "m" + text + "\x1b[0m"
}
