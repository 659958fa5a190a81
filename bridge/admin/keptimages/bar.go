package keptimages

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// bar shows the progress of an image: on a terminal as one line that changes, else as a
// line at each stage and every ten seconds.
type bar struct {
	w     io.Writer // for lines
	raw   io.Writer // for drawings
	now   func() time.Time
	what  string
	width func() int // of the terminal; nil for none

	last  transfer.Stage // what was printed last, and when
	since time.Time
	drawn bool
}

// lineEvery is the pause between two lines of one stage, where there is no
// terminal.
const lineEvery = 10 * time.Second

func newBar(w io.Writer, now func() time.Time, what string) *bar {
	b := &bar{w: w, raw: termtext.Raw(w), now: now, what: termtext.OneLine(what)}
	if f, ok := b.raw.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		b.width = func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil || width <= 0 {
				return 80
			}
			return width
		}
	}
	return b
}

// show draws the progress. Errors of the terminal do not matter.
func (b *bar) show(s transfer.Progress) {
	now := b.now()
	switch {
	case b.width != nil:
		_, _ = io.WriteString(b.raw, "\r\x1b[K"+b.drawing(s, b.width()-1))
		b.drawn = true
	case s.Stage != b.last || now.Sub(b.since) >= lineEvery:
		b.last, b.since = s.Stage, now
		_, _ = io.WriteString(b.w, b.what+": "+words(s)+"\n")
	}
}

// clear removes the drawing.
func (b *bar) clear() {
	if b.drawn {
		_, _ = io.WriteString(b.raw, "\r\x1b[K")
	}
}

// drawing returns a line of at most this width: the image, a bar, and words.
func (b *bar) drawing(s transfer.Progress, width int) string {
	const least, most = 10, 30
	text, name := words(s), []rune(b.what)
	if s.Total > 0 {
		percent := min(100, 100*float64(s.Done)/float64(s.Total))
		full := min(most, width-len(name)-len([]rune(text))-10)
		figure := fmt.Sprintf("%3.0f%% ", percent)
		if full >= least {
			done := int(percent / 100 * float64(full))
			figure = "[" + strings.Repeat("#", done) + strings.Repeat(".", full-done) + "] " + figure
		}
		text = figure + text
	}
	line := append(append(name, ' '), []rune(termtext.OneLine(text))...)
	return string(line[:min(len(line), max(width, 0))])
}

// words describes the progress.
func words(s transfer.Progress) string {
	switch s.Stage {
	case transfer.Asking:
		return "asking " + s.By
	case transfer.Queued:
		return "waiting for other images"
	case transfer.Elsewhere:
		return "waiting for " + s.By + ", which brings it in"
	case transfer.Storing:
		return "reading the SIF back and storing it"
	case transfer.Idle, transfer.Pulling, transfer.Converting, transfer.Reading:
	}
	text := string(s.Stage) + " " + codalab.FormatSize(s.Done)
	if s.Total > 0 {
		text += " of " + codalab.FormatSize(max(s.Total, s.Done))
	}
	if s.Rate > 0 {
		text += " at " + codalab.FormatSize(s.Rate) + "/s"
		if left := s.Total - s.Done; left > 0 {
			text += ", " + codalab.FormatDuration(max(time.Duration(float64(left)/float64(s.Rate)*float64(time.Second)).Round(time.Second), time.Second)) + " left"
		}
	}
	return text
}
