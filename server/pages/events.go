package pages

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
)

const (
	// gatherFor is the time for which a stream gathers changes.
	gatherFor = time.Second
	// lookEvery is the time after which a stream looks at a file that grows, of which nobody tells it.
	lookEvery = 2 * time.Second
	// aliveEvery is the time after which a stream sends something, so that proxies keep it, and the server learns that a
	// browser has gone.
	aliveEvery = 25 * time.Second
)

// stream sends a page's parts to a browser while it looks, as server-sent events (HTML, 9.2).
type stream struct {
	v *visit
	// sent has what was sent last, by event.
	sent map[string]string
}

func (v *visit) stream() *stream {
	v.Header().Set("Content-Type", "text/event-stream")
	v.Header().Set("Cache-Control", "no-store")
	v.Header().Set("X-Accel-Buffering", "no") // nginx sends each event on
	v.WriteHeader(http.StatusOK)
	return &stream{v, map[string]string{}}
}

// send sends an event, unless the browser has it.
func (s *stream) send(event, text string) error {
	if s.sent[event] == text {
		return nil
	}
	s.sent[event] = text
	var out strings.Builder
	out.WriteString("event: " + event + "\n")
	for line := range strings.Lines(strings.ReplaceAll(text, "\r", "&#13;")) {
		out.WriteString("data: " + strings.TrimSuffix(line, "\n") + "\n")
	}
	if text == "" {
		out.WriteString("data:\n")
	}
	return s.write(out.String() + "\n")
}

// alive sends a comment.
func (s *stream) alive() error { return s.write(":\n\n") }

func (s *stream) write(text string) error {
	_, err := s.v.ResponseWriter.Write([]byte(text))
	if err == nil {
		err = http.NewResponseController(s.v.ResponseWriter).Flush()
	}
	if errors.Is(err, http.ErrNotSupported) {
		err = nil // a test's
	}
	if err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	return nil
}

// part is a part of a page as text.
func (p *Pages) part(name, part string, data any) (string, error) {
	var text bytes.Buffer
	if err := p.templates[name].ExecuteTemplate(&text, part, data); err != nil {
		return "", fmt.Errorf("page %s: %w", name, err)
	}
	return strings.TrimSpace(text.String()), nil
}

// follow calls look at once, after changes of a topic, and after each time every, until it is done, fails, or the browser
// has gone. An error ends the stream; the browser asks again.
func (p *Pages) follow(v *visit, topic string, every time.Duration, look func(*stream) (done bool, err error)) error {
	w := p.feed.watch(topic)
	defer p.feed.leave(w)
	s := v.stream()
	var silent time.Duration
	for {
		before := len(s.sent)
		done, err := look(s)
		if err != nil || done {
			return p.ended(v, err)
		}
		if silent += every; silent >= aliveEvery || before != len(s.sent) {
			silent, err = 0, s.alive()
		}
		if err == nil {
			err = w.wait(v.Context(), every)
		}
		if err == nil {
			err = pause.For(v.Context(), gatherFor)
		}
		if err != nil {
			return p.ended(v, err)
		}
	}
}

// ended notes why a stream has ended, unless the browser has gone. The answer has begun, so that nobody can be told.
func (p *Pages) ended(v *visit, err error) error {
	if err != nil && v.Context().Err() == nil {
		p.config.Log.LogAttrs(v.Context(), slog.LevelDebug, "a page's stream has ended", slog.String("path", v.URL.Path), slog.String("error", err.Error()))
	}
	return nil
}

// runEvents follows a list of bundles.
func (p *Pages) runEvents(v *visit) error {
	if _, err := p.listed(v); err != nil {
		return err
	}
	return p.follow(v, ownerTopic(v.user.ID), aliveEvery, func(s *stream) (bool, error) {
		l, err := p.listed(v)
		if err != nil {
			return false, err
		}
		text, err := p.part("runs", "rows", l)
		if err != nil {
			return false, err
		}
		return false, s.send("rows", text)
	})
}

// bundleEvents follows a bundle: its state, and the ends of its output.
func (p *Pages) bundleEvents(v *visit) error {
	if _, err := p.openBundle(v); err != nil {
		return err
	}
	return p.follow(v, bundleTopic(v.PathValue("uuid")), lookEvery, func(s *stream) (bool, error) {
		b, err := p.openBundle(v)
		if err != nil {
			return false, err
		}
		text, err := p.part("bundle", "standing", b)
		if err == nil {
			err = s.send("standing", text)
		}
		if err != nil {
			return false, err
		}
		if b.State.Final() {
			return true, s.send("ended", "ended")
		}
		files, err := p.directory(v, "")
		if err != nil || files == nil {
			return false, nil //nolint:nilerr // the worker may answer later
		}
		for _, o := range p.outputs(v, files) {
			if text, err = p.part("bundle", "output", o); err == nil {
				err = s.send(o.Name, text)
			}
			if err != nil {
				return false, err
			}
		}
		return false, nil
	})
}
