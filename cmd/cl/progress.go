package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const (
	// A transfer shorter than showAfter is not shown.
	showAfter = time.Second
	showEvery = 200 * time.Millisecond
	// The shown rate is an average over rateOver.
	rateOver = 5 * time.Second
)

// progress shows a transfer on a terminal, in one line that is drawn again and again:
//
//	Sent 1.2g of 3.4g (35%), 120 of 1500 files, 80m/s, 27s left
//
// It shows nothing elsewhere. It is our own since the best known library (schollz/progressbar) draws
// at once, counts no files, and leaves a goroutine behind when the size is not known. It is safe for
// concurrent use.
type progress struct {
	to    io.Writer // nil for none
	width func() int
	verb  string
	now   func() time.Time
	// files is the total number of files, 0 if they are not counted.
	files int64

	mu         sync.Mutex
	total      int64
	done       int64
	filesDone  int64
	begun      time.Time
	shown      time.Time // when the line was drawn last; zero if there is no line
	drawn      bool      // at any time
	rate       float64   // bytes in a second
	rated      time.Time
	ratedBytes int64
}

// progress begins to show a transfer of total bytes, -1 if unknown.
func (c *cli) progress(verb string, total int64) *progress {
	p := &progress{verb: verb, total: total, now: c.Now, begun: c.Now()}
	p.rated = p.begun
	if fd, ok := terminal(c.Stderr); ok {
		p.to = termtext.Raw(c.Stderr)
		p.width = func() int {
			width, _, err := term.GetSize(fd)
			if err != nil || width <= 0 {
				return 80
			}
			return width
		}
	}
	return p
}

// Write counts bytes.
func (p *progress) Write(b []byte) (int, error) {
	p.add(int64(len(b)))
	return len(b), nil
}

// add counts n bytes.
func (p *progress) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	now := p.now()
	if p.to == nil || now.Sub(p.begun) < showAfter || now.Sub(p.shown) < showEvery {
		return
	}
	p.measure(now)
	p.shown, p.drawn = now, true
	p.draw(p.line())
}

// addFile counts a file.
func (p *progress) addFile() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filesDone++
}

// restart sets the number of bytes that are already transferred.
func (p *progress) restart(done int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.ratedBytes, p.rated, p.rate = done, done, p.now(), 0
}

// clear removes the line, so that other output can follow. The next bytes draw it again.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		_, _ = fmt.Fprint(p.to, "\r\x1b[K") // only a display
		p.shown = time.Time{}
	}
}

// end draws the line a last time, if there is one, and leaves it. It may be called again.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.to == nil || !p.drawn {
		return
	}
	p.drawn = false
	took := p.now().Sub(p.begun)
	text := fmt.Sprintf("%s, %s/s, took %s", p.amount(), codalab.FormatSize(int64(float64(p.done)/took.Seconds())), wholeSeconds(took))
	p.draw(text)
	_, _ = fmt.Fprintln(p.to) // only a display
	p.to = nil
}

// measure updates the rate, an exponentially weighted average.
func (p *progress) measure(now time.Time) {
	took := now.Sub(p.rated).Seconds()
	if took <= 0 {
		return
	}
	rate := float64(p.done-p.ratedBytes) / took
	if p.rate > 0 {
		weight := min(1, took/rateOver.Seconds())
		rate = p.rate*(1-weight) + rate*weight
	}
	p.rate, p.rated, p.ratedBytes = rate, now, p.done
}

func (p *progress) line() string {
	text := fmt.Sprintf("%s, %s/s", p.amount(), codalab.FormatSize(int64(p.rate)))
	if left := p.total - p.done; p.total > 0 && left > 0 && p.rate >= 1 {
		seconds := min(float64(left)/p.rate, (100 * 24 * time.Hour).Seconds())
		text += fmt.Sprintf(", %s left", wholeSeconds(time.Duration(seconds)*time.Second))
	}
	return text
}

// wholeSeconds is a duration in whole seconds.
func wholeSeconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%ds", int(d.Seconds()))
	}
	return codalab.FormatDuration(d)
}

func (p *progress) amount() string {
	text := p.verb + " " + codalab.FormatSize(p.done)
	if p.total > 0 {
		text += fmt.Sprintf(" of %s (%d%%)", codalab.FormatSize(p.total), int(min(100, 100*float64(p.done)/float64(p.total))))
	}
	if p.files > 0 {
		text += fmt.Sprintf(", %d of %d files", p.filesDone, p.files)
	}
	return text
}

// draw draws a line in place of the present one. The cursor stays on it, also in a narrow terminal.
func (p *progress) draw(text string) {
	if most := p.width() - 1; len(text) > most {
		text = text[:max(0, most)]
	}
	_, _ = fmt.Fprint(p.to, "\r\x1b[K"+text) // only a display
}
