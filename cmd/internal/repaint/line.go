package repaint

import (
	"io"

	"github.com/cl-slurm/cl-slurm/cmd/internal/columns"
)

// Line is a line at the end of a terminal that is drawn again and again. It is for one goroutine.
type Line struct {
	// To is the terminal.
	To io.Writer
	// Width returns the present number of its columns.
	Width func() int

	drawn string
}

// Show draws a text, which may be painted, in place of the one before. The cursor stays on its line, also in a narrow
// terminal.
func (l *Line) Show(text string) error {
	text = columns.Cut(text, l.Width()-1)
	if text == l.drawn {
		return nil
	}
	l.drawn = text
	return write(l.To, "\r\x1b[K"+text)
}

// Clear removes the line, so that other output can follow.
func (l *Line) Clear() error {
	if l.drawn == "" {
		return nil
	}
	l.drawn = ""
	return write(l.To, "\r\x1b[K")
}

// Leave ends the line, and keeps its text.
func (l *Line) Leave() error {
	if l.drawn == "" {
		return nil
	}
	l.drawn = ""
	return write(l.To, "\n")
}

func write(to io.Writer, text string) error {
	_, err := io.WriteString(to, text)
	return err
}
