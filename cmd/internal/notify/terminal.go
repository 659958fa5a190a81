package notify

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/cl-slurm/cl-slurm/cmd/internal/columns"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// longest is the number of columns of a notification. Desktops show about as much.
const longest = 200

// Sequence returns what makes a terminal ring its bell and show a text as a notification of the desktop. Terminals
// ignore notifications that they do not know. The text is shown as one line.
func Sequence(getenv func(string) string, text string) string {
	const bell = "\a"
	text = columns.Cut(termtext.OneLine(text), longest)
	kind := getenv("TERM")
	switch kind {
	case "", "dumb", "linux": // the console of Linux prints the rest of sequences that it does not know
		return bell
	}
	shown := ansi.Notify(text)
	if strings.HasPrefix(kind, "rxvt") || strings.HasPrefix(kind, "foot") || getenv("VTE_VERSION") != "" {
		shown = ansi.URxvtExt("notify", "cl", text)
	}
	switch { // these two keep the sequence from the terminal around them, but not the bell
	case getenv("TMUX") != "":
		shown = ansi.TmuxPassthrough(shown)
	case getenv("STY") != "":
		shown = ansi.ScreenPassthrough(shown, screenLimit)
	}
	return bell + shown
}

// screenLimit is the longest string that GNU Screen passes on.
const screenLimit = 768
