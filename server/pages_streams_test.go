package server_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// events reads the events of a stream as they come.
type events struct {
	t     *testing.T
	lines *bufio.Scanner
}

// next returns the next event of a name.
func (e *events) next(name string) string {
	e.t.Helper()
	var event, data string
	for e.lines.Scan() {
		line := e.lines.Text()
		switch {
		case line == "" && event == name:
			return data
		case line == "":
			event, data = "", ""
		case strings.HasPrefix(line, "event: "):
			event = strings.TrimPrefix(line, "event: ")
		case strings.HasPrefix(line, "data: "):
			data += strings.TrimPrefix(line, "data: ") + "\n"
		}
	}
	e.t.Fatalf("the stream has ended before an event %s: %v", name, e.lines.Err())
	return ""
}

// opens opens a stream of events.
func (b *visitor) opens(t *testing.T, address, path string) *events {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
	must(t, err)
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %s %s", path, resp.Status, resp.Header.Get("Content-Type"))
	}
	return &events{t, bufio.NewScanner(resp.Body)}
}

// A list and a bundle that somebody looks at change without being asked for.
func TestPagesFollowWhatHappens(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	web := httptest.NewServer(s.handler)
	t.Cleanup(web.Close)
	first := s.run("first command", nil)
	a := s.browse(t, "alice")
	list, one := a.opens(t, web.URL, "/runs/events?q=.mine"), a.opens(t, web.URL, "/bundles/"+first+"/events")
	if rows := list.next("rows"); !strings.Contains(rows, "first command") || strings.Contains(rows, "second command") {
		t.Errorf("the list shows %s", rows)
	}
	if standing := one.next("standing"); !strings.Contains(standing, "staged") {
		t.Errorf("the bundle is %s", standing)
	}
	s.run("second command", nil)
	if rows := list.next("rows"); !strings.Contains(rows, "second command") {
		t.Errorf("the list shows %s", rows)
	}
	s.kill(first)
	for !strings.Contains(list.next("rows"), "state killed") {
		continue
	}
	one.next("ended")
}

// A page that is open elsewhere is told when its sign-in ends, by a sign-out or a new password, though nothing else happens.
func TestStreamsEndWithTheSignIn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	web := httptest.NewServer(s.handler)
	t.Cleanup(web.Close)
	run := s.run("train", nil)
	for path, first := range map[string]string{"/runs/events?q=.mine": "rows", "/bundles/" + run + "/events": "standing"} {
		a := s.browse(t, "alice")
		stream := a.opens(t, web.URL, path)
		stream.next(first)
		a.sends(t, "/signout", url.Values{})
		if over := stream.next("over"); !strings.Contains(over, "/signin?next=") {
			t.Errorf("%s says %s", path, over)
		}
		stream.next("ended")
		for stream.lines.Scan() {
			continue
		}
	}
}

// A stream does not hold the server up when it stops, and a user cannot have any number of them.
func TestStreamsEndWithTheServerAndAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx, stop := context.WithCancel(t.Context())
	data, err := store.Open(ctx, t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, data.Close()) })
	must(t, data.AddUser(ctx, userNamed("alice")))
	own := server.New(server.Config{Store: data, Now: time.Now, PasswordCost: server.PasswordCost{Passes: 1, KiB: 8}})
	s.handler = own.Handler()
	ran := make(chan error, 1)
	go func() { ran <- own.Run(ctx) }()
	web := httptest.NewServer(s.handler)
	t.Cleanup(web.Close)
	a := s.browse(t, "alice")
	var streams []*events
	for range 50 {
		streams = append(streams, a.opens(t, web.URL, "/runs/events"))
		streams[len(streams)-1].next("rows")
	}
	a.shows(t, "/runs/events", http.StatusTooManyRequests)
	stop()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, e := range streams {
		for e.lines.Scan() {
			continue
		}
	}
}
