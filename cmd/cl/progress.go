package main

import (
	"fmt"
	"io"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// progress shows a transfer's progress on a terminal; it shows nothing elsewhere.
type progress struct {
	to    io.Writer
	verb  string
	total int64
	done  int64
	now   func() time.Time
	begun time.Time
	shown time.Time
}

// progress begins to show a transfer of total bytes, -1 if unknown.
func (c *cli) progress(verb string, total int64) *progress {
	p := &progress{to: termtext.Raw(c.Stderr), verb: verb, total: total, now: c.Now, begun: c.Now()}
	if _, ok := terminal(c.Stderr); !ok {
		p.to = io.Discard
	}
	p.shown = p.begun
	return p
}

// Write counts bytes.
func (p *progress) Write(b []byte) (int, error) {
	p.done += int64(len(b))
	if now := p.now(); now.Sub(p.shown) >= 200*time.Millisecond {
		p.shown = now
		p.show(now)
	}
	return len(b), nil
}

// end shows the last line, unless nothing was shown.
func (p *progress) end() {
	if p.shown.After(p.begun) {
		p.show(p.now())
		fmt.Fprintln(p.to) //nolint:errcheck // only a display
	}
}

func (p *progress) show(now time.Time) {
	of := ""
	if p.total > 0 {
		of = fmt.Sprintf(" of %s (%d%%)", codalab.FormatSize(p.total), p.done*100/p.total)
	}
	speed := int64(float64(p.done) / max(now.Sub(p.begun).Seconds(), 0.001))
	//nolint:errcheck // only a display
	fmt.Fprintf(p.to, "\r\x1b[K%s %s%s [%s/s]", p.verb, codalab.FormatSize(p.done), of, codalab.FormatSize(speed))
}
