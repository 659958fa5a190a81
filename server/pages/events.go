package pages

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/clientnet"
	"github.com/cl-slurm/cl-slurm/server/logcurves"
	"github.com/cl-slurm/cl-slurm/server/rest"
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

// look sends what is new. again is the time after which to look though nobody tells of a change; 0 for never. Done ends the
// stream.
type look func(s *stream) (again time.Duration, done bool, err error)

// follow looks at once, after each change of a topic, and again after the time that the last look has returned. It ends when a
// look is done or fails, when the browser has gone, and when the sign-in has ended. An error ends the stream; the browser asks
// again.
func (p *Pages) follow(v *visit, topic string, look look) error {
	w := p.feed.watch(p.counted(v), topic)
	if w == nil {
		return rest.Refuse(http.StatusTooManyRequests, "You follow %d pages: close some.", mostStreams)
	}
	defer p.feed.leave(w)
	signedIn, leave, err := p.config.Follow(v.Request)
	if err != nil {
		return err
	}
	defer leave()
	s := v.stream()
	for {
		again, done, err := look(s)
		for err == nil && !done {
			var told bool
			if told, err = w.wait(signedIn, cmp.Or(again, aliveEvery)); err == nil && (told || again > 0) {
				err = w.gather(signedIn, gatherFor)
				break
			}
			if err == nil {
				err = s.alive()
			}
		}
		if v.Context().Err() == nil && (signedIn.Err() != nil || err != nil && p.signedOut(signedIn)) {
			err, done = p.sendOver(s), true
		}
		if err != nil || done {
			return p.ended(v, err)
		}
	}
}

// counted names the user for whom a visit counts, or the network of one who has not signed in.
func (p *Pages) counted(v *visit) string {
	if v.user.ID == "" {
		return "network " + clientnet.Of(p.config.Address(v.Request))
	}
	return v.user.ID
}

// signedOut reports whether the sign-in of a stream that failed has ended. The server may have answered its last question as one
// of somebody without a sign-in.
func (p *Pages) signedOut(signedIn context.Context) bool {
	no, ok := errors.AsType[*rest.RefusalError](p.config.StillSignedIn(signedIn))
	return ok && no.Status == http.StatusUnauthorized
}

// sendOver tells that the reader's sign-in has ended, and ends the stream: a browser asks for no other one.
func (p *Pages) sendOver(s *stream) error {
	page, err := url.Parse(s.v.Referer())
	if err != nil {
		page = &url.URL{}
	}
	text, err := p.part("problem", "over", rest.LocalPath(page.RequestURI()))
	if err == nil {
		err = s.send("over", text)
	}
	if err == nil {
		err = s.send("ended", "ended")
	}
	return err
}

// ended notes why a stream has ended, unless the browser has gone. The answer has begun, so that nobody can be told.
func (p *Pages) ended(v *visit, err error) error {
	if err != nil && v.Context().Err() == nil {
		p.config.Log.LogAttrs(v.Context(), slog.LevelDebug, "a page's stream has ended", slog.String("path", v.URL.Path), slog.String("error", err.Error()))
	}
	return nil
}

// runEvents follows a list of bundles. Changes of the reader's own are told; a list of others' is read anew from time to time.
func (p *Pages) runEvents(v *visit) error {
	first, err := p.listed(v)
	if err != nil {
		return err
	}
	again := time.Duration(0)
	if !slices.Contains(strings.Fields(first.Query), ".mine") {
		again = aliveEvery
	}
	return p.followList(v, again, "runs", "rows", func() (any, error) { return p.listed(v) })
}

// followList sends a part of a page, in an event of its name, at each change of the reader's own bundles, and again after a time
// if that is not 0. read returns what the part shows.
func (p *Pages) followList(v *visit, again time.Duration, page, part string, read func() (any, error)) error {
	return p.follow(v, ownerTopic(v.user.ID), func(s *stream) (time.Duration, bool, error) {
		shown, err := read()
		if err != nil {
			return 0, false, err
		}
		text, err := p.part(page, part, shown)
		if err != nil {
			return 0, false, err
		}
		if text == s.sent[part] {
			return again, false, s.alive()
		}
		return again, false, s.send(part, text)
	})
}

// bundleEvents follows a bundle: its state, and while it runs the ends of its output and the curves of a log. The page of that
// log alone asks for no output.
func (p *Pages) bundleEvents(v *visit) error {
	if _, err := p.openBundle(v); err != nil {
		return err
	}
	q := v.URL.Query()
	var log *follower
	if name := q.Get("log"); logcurves.IsLog(name) {
		log = &follower{log: logcurves.New(name), bundle: v.PathValue("uuid"), path: name}
	}
	return p.follow(v, bundleTopic(v.PathValue("uuid")), func(s *stream) (time.Duration, bool, error) {
		b, err := p.openBundle(v)
		if err != nil {
			return 0, false, err
		}
		text, err := p.part("bundle", "standing", b)
		if err == nil {
			err = s.send("standing", text)
		}
		switch {
		case err != nil:
			return 0, false, err
		case b.State.Final():
			return 0, true, s.send("ended", "ended")
		case b.State != codalab.StateRunning || !b.Run():
			return 0, false, nil
		}
		if log != nil {
			if err := p.sendLog(v, s, log); err != nil {
				return 0, false, err
			}
		}
		if q.Has("alone") {
			return lookEvery, false, s.alive()
		}
		if err := p.sendUsage(v, s, b); err != nil {
			return 0, false, err
		}
		return lookEvery, false, p.sendOutputs(v, s)
	})
}

// sendLog sends the curves of a log, as far as it can be read.
func (p *Pages) sendLog(v *visit, s *stream, l *follower) error {
	if err := p.more(v, l); err != nil {
		return nil //nolint:nilerr // a worker that does not answer now may answer later
	}
	view := l.view()
	if view == nil {
		return nil
	}
	data, err := json.Marshal(view.Curves)
	if err == nil {
		err = s.send("curves", string(data))
	}
	if err != nil {
		return err
	}
	text, err := p.part("bundle", "numbers", view)
	if err == nil {
		err = s.send("numbers", text)
	}
	return err
}

// sendOutputs sends the ends of a run's stdout and stderr, as far as they are there, or why they cannot be read now. A worker that
// does not answer now may answer later.
func (p *Pages) sendOutputs(v *visit, s *stream) error {
	for _, name := range outputNames() {
		text, err := p.part("bundle", "output", p.end(v, name))
		if err == nil {
			err = s.send(name, text)
		}
		if err != nil {
			return err
		}
	}
	return s.alive() // which notices a browser that has gone
}
