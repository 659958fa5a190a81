package repaint

import (
	"io"

	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/cmd/internal/colour"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// Terminal is a stream that is a terminal on which texts can be shown in place of others.
type Terminal struct {
	// Raw is the stream without escapes.
	Raw io.Writer
	fd  int
}

// OnTerminal returns the terminal of a stream of a process; false for other streams, and for a terminal that knows no
// commands.
func OnTerminal(stream io.Writer, getenv func(string) string) (Terminal, bool) {
	raw := termtext.Raw(stream)
	f, ok := raw.(interface{ Fd() uintptr })
	if !ok {
		return Terminal{}, false
	}
	fd := int(f.Fd())
	return Terminal{raw, fd}, term.IsTerminal(fd) && !colour.Dumb(getenv) && colour.Enable(fd)
}

// Size returns the present numbers of columns and rows; 80 and 24 if the terminal does not tell them.
func (t Terminal) Size() (columns, rows int) {
	columns, rows, err := term.GetSize(t.fd)
	if err != nil || columns <= 0 || rows <= 0 {
		return 80, 24
	}
	return columns, rows
}

// Line returns the last line of the terminal.
func (t Terminal) Line() *Line {
	return &Line{To: t.Raw, Width: func() int { width, _ := t.Size(); return width }}
}

// Screen returns all of the terminal.
func (t Terminal) Screen() *Screen { return &Screen{To: t.Raw, Size: t.Size} }
