package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
)

// serveWeb serves a site on a real socket.
func (s *site) serveWeb() *httptest.Server {
	web := httptest.NewServer(s.handler)
	s.t.Cleanup(web.Close)
	return web
}

// doorbell opens a websocket as CodaLab's worker does.
func doorbell(t *testing.T, web *httptest.Server, path string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), web.URL+path, nil)
	must(t, err)
	t.Cleanup(func() { _ = c.CloseNow() })
	must(t, c.Write(t.Context(), websocket.MessageText, []byte("a")))
	return c
}

// awaitRing waits until the server rings.
func awaitRing(t *testing.T, c *websocket.Conn) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer stop()
	if kind, text, err := c.Read(ctx); err != nil || kind != websocket.MessageText || string(text) != "check in" {
		t.Fatalf("%v %q, %v", kind, text, err)
	}
}

// countRings counts rings until the connection ends.
func countRings(c *websocket.Conn) *atomic.Int64 {
	n := new(atomic.Int64)
	go func() {
		for {
			if _, _, err := c.Read(context.Background()); err != nil {
				return
			}
			n.Add(1)
		}
	}()
	return n
}

func TestDoorbellRingsForEachKindOfMessage(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t, func(c *server.Config) { c.Hold = 20 * time.Millisecond })
	w.id = "other w(1)" // not the worker that has the run
	w.checkIn()
	w.id = "w"
	running := reportOf(uuid, codalab.StateRunning)
	w.checkIn(running)
	web := s.serveWeb()
	c, others := doorbell(t, web, "/ws/worker/w"), countRings(doorbell(t, web, "/ws/worker/other%20w(1)"))
	countRings(doorbell(t, web, "/ws/worker/nobody")) // is accepted, and hears nothing

	read := s.aside(s.request("alice", http.MethodGet, "/bundles/"+uuid+"/contents/blob/stdout", nil))
	awaitRing(t, c)
	m := w.told(codalab.MessageRead, running)
	w.call("alice", http.MethodPost, "/workers/w/reply/"+strconv.FormatInt(m.SocketID, 10), codalab.ReadReply{ErrorCode: http.StatusNotFound, ErrorMessage: "no such file"}).ok()
	(<-read).is(http.StatusNotFound)

	netcat := s.aside(s.request("alice", http.MethodPut, "/bundles/"+uuid+"/netcat/5005/", map[string]string{"message": "hi"}))
	awaitRing(t, c)
	w.reply(w.told(codalab.MessageNetcat, running).SocketID, "hello")
	(<-netcat).ok()

	write := s.aside(s.request("alice", http.MethodPost, "/bundle-actions", object("bundle-actions", map[string]string{"type": "write", "uuid": uuid, "subpath": "f", "string": "x"})))
	awaitRing(t, c)
	w.told(codalab.MessageWrite, running)
	(<-write).ok()

	next := s.run("x", cpuQueue)
	awaitRing(t, c)
	if m := w.told(codalab.MessageRun, running); m.Bundle.UUID != next {
		t.Errorf("told to run %s", m.Bundle.UUID)
	}
	s.call("alice", http.MethodPost, "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": uuid})).ok()
	awaitRing(t, c)
	w.told(codalab.MessageKill, running)
	if n := others.Load(); n != 0 {
		t.Errorf("it rang %d times for another worker", n)
	}
}

// A check-in with reports is answered without the messages that wait.
func TestDoorbellRingsForMessagesThatACheckInLeaves(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t, func(c *server.Config) { c.Hold = 20 * time.Millisecond })
	w.checkIn(reportOf(uuid, codalab.StateRunning))
	next := s.run("x", cpuQueue)
	s.await(next, codalab.StateStarting)
	c := doorbell(t, s.serveWeb(), "/ws/worker/w")
	if got := w.checkIn(ended(uuid)); len(got) != 1 || got[0].Type != codalab.MessageMarkFinalized {
		t.Fatalf("told %+v", got)
	}
	awaitRing(t, c)
	if m := w.told(codalab.MessageRun); m.Bundle.UUID != next {
		t.Errorf("told %+v", m)
	}
}

func TestCheckInOfAWorkerWithADoorbellIsNotHeld(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.Hold = time.Hour })
	web, w := s.serveWeb(), s.worker("alice", "w", "cpu")
	doorbell(t, web, "/ws/worker/w")
	if got := w.checkIn(); len(got) != 0 {
		t.Errorf("told %+v", got)
	}
	// A bridge checks in again at once.
	bridge := s.worker("alice", "bridge", "slurm")
	bridge.info.Instance = "x"
	doorbell(t, web, "/ws/worker/bridge")
	held := bridge.checkInAside()
	s.run("x", map[string]any{"request_queue": "slurm"})
	if got := <-held; len(got.messages) != 1 {
		t.Errorf("the bridge is told %+v", got.messages)
	}
}

func TestDoorbellsAreBounded(t *testing.T) {
	t.Parallel()
	web := newSite(t).serveWeb()
	var last *websocket.Conn
	for range 8 {
		last = doorbell(t, web, "/ws/worker/w")
	}
	status := func(path string, header http.Header) int {
		c, r, err := websocket.Dial(t.Context(), web.URL+path, &websocket.DialOptions{HTTPHeader: header})
		if err == nil {
			_ = c.CloseNow()
		} else if r == nil {
			t.Fatal(err)
		}
		return r.StatusCode
	}
	for path, want := range map[string]int{
		"/ws/worker/w": http.StatusServiceUnavailable, "/ws/worker/other": http.StatusSwitchingProtocols, "/ws/a/worker/b": http.StatusSwitchingProtocols,
		"/ws/worker/": http.StatusNotFound, "/ws/main": http.StatusNotFound, "/worker/w": http.StatusNotFound,
	} {
		if got := status(path, nil); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	if got := status("/ws/worker/other", http.Header{"Origin": {"https://elsewhere.example"}}); got != http.StatusForbidden {
		t.Errorf("from another site's page: %d", got)
	}
	// A message that no worker sends ends the websocket, and makes room for another.
	must(t, last.Write(t.Context(), websocket.MessageText, []byte(strings.Repeat("a", 100))))
	if _, _, err := last.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Errorf("a long message: %v", err)
	}
	testenv.Await(t, "there is room for another", func() bool { return status("/ws/worker/w", nil) == http.StatusSwitchingProtocols })
}

func TestDoorbellsEndWithTheServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	stop := s.start()
	web := s.serveWeb()
	c := doorbell(t, web, "/ws/worker/w")
	ended := make(chan error, 1)
	go func() {
		_, _, err := c.Read(context.Background())
		ended <- err
	}()
	stop()
	if err := <-ended; websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("it ended with %v", err)
	}
	if _, _, err := websocket.Dial(t.Context(), web.URL+"/ws/worker/w", nil); err == nil {
		t.Error("the stopped server accepts a websocket")
	}
}
