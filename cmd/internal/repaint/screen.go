package repaint

import (
	"fmt"
	"io"
	"strings"

	"github.com/cl-slurm/cl-slurm/cmd/internal/columns"
)

// Screen is a whole terminal on which texts are shown one after another. It takes the terminal's alternate screen, so
// that the user's own lines are there again after Close. It is for one goroutine.
type Screen struct {
	// To is the terminal.
	To io.Writer
	// Size returns the present numbers of its columns and rows.
	Size func() (columns, rows int)

	open          bool
	columns, rows int
	shown         []string
}

// The commands of a terminal (xterm's control sequences): the alternate screen and no cursor; both of them ended; and an
// empty screen.
const (
	begin = "\x1b[?1049h\x1b[?25l"
	end   = "\x1b[?25h\x1b[?1049l"
	empty = "\x1b[2J"
)

// Show shows lines, which may be painted, in place of the ones before. It cuts those that are too wide, leaves out
// those below the end of the terminal, and writes those that have changed.
func (s *Screen) Show(lines []string) error {
	var out strings.Builder
	if !s.open {
		s.open = true
		out.WriteString(begin)
	}
	width, height := s.Size()
	if width != s.columns || height != s.rows {
		s.columns, s.rows, s.shown = width, height, nil
		out.WriteString(empty)
	}
	lines = lines[:min(len(lines), height)]
	cut := make([]string, len(lines))
	for i, line := range lines {
		cut[i] = columns.Cut(line, width)
		if i >= len(s.shown) || s.shown[i] != cut[i] {
			// It is cleared first: after a line that fills the row, the cursor is still on its last character.
			fmt.Fprintf(&out, "\x1b[%d;1H\x1b[K%s", i+1, cut[i])
		}
	}
	if len(cut) < len(s.shown) {
		fmt.Fprintf(&out, "\x1b[%d;1H\x1b[J", len(cut)+1)
	}
	s.shown = cut
	if out.Len() == 0 {
		return nil
	}
	return write(s.To, out.String())
}

// Resized reports whether the terminal has another size than at the last Show.
func (s *Screen) Resized() bool {
	width, height := s.Size()
	return s.open && (width != s.columns || height != s.rows)
}

// Close gives the terminal back. It may be called again.
func (s *Screen) Close() error {
	if !s.open {
		return nil
	}
	s.open = false
	s.shown, s.columns, s.rows = nil, 0, 0
	return write(s.To, end)
}
