package server

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"
)

// Bounds of doorbells. A worker that gets none checks in every few seconds as without one.
const (
	maxBells          = 4096
	maxBellsOfAddress = 1024
	maxBellsOfID      = 8
	// bellReadLimit bounds one message of a worker, which is the letter "a".
	bellReadLimit = 64
	// bellReadTimeout is how long a worker may be silent. CodaLab's worker sends a message every
	// ten seconds, but not while it checks in, and a check-in is held for up to Config.Hold.
	bellReadTimeout  = time.Minute
	bellWriteTimeout = 10 * time.Second
)

// bells are the doorbells: the websockets on which the server tells a worker to check in now. A ring
// means only that: messages go in check-ins, and a lost ring delays them until the next one. So a
// websocket needs no sign-in. The hub's lock guards bells.
type bells struct {
	ofID      map[string]map[*bell]bool // by worker id
	ofAddress map[string]int            // how many each client address has
	all       int
	open      sync.WaitGroup
}

// bell is one doorbell.
type bell struct {
	id, address string
	rung        chan struct{} // gets an element when the bell rings; never closed
	over        chan struct{} // closed when the server stops
}

// addBell adds a doorbell. Its caller calls removeBell.
func (h *hub) addBell(id, address string) (*bell, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.stopped:
		return nil, refuse(http.StatusServiceUnavailable, "The server stops.")
	case h.bells.all >= maxBells, h.bells.ofAddress[address] >= maxBellsOfAddress, len(h.bells.ofID[id]) >= maxBellsOfID:
		return nil, refuse(http.StatusServiceUnavailable, "Too many websockets are open. Workers need none.")
	}
	b := &bell{id: id, address: address, rung: make(chan struct{}, 1), over: make(chan struct{})}
	if h.bells.ofID[id] == nil {
		h.bells.ofID[id] = map[*bell]bool{}
	}
	h.bells.ofID[id][b] = true
	h.bells.ofAddress[address]++
	h.bells.all++
	h.bells.open.Add(1)
	return b, nil
}

func (h *hub) removeBell(b *bell) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.bells.ofID[b.id], b)
	if len(h.bells.ofID[b.id]) == 0 {
		delete(h.bells.ofID, b.id)
	}
	if h.bells.ofAddress[b.address]--; h.bells.ofAddress[b.address] == 0 {
		delete(h.bells.ofAddress, b.address)
	}
	h.bells.all--
	h.bells.open.Done()
}

// ring rings the doorbells with the id of a worker that has checked in. The caller holds h.mu.
func (h *hub) ring(w *worker) {
	if !w.known {
		return
	}
	for b := range h.bells.ofID[w.key.ID] {
		select {
		case b.rung <- struct{}{}:
		default: // it rings already
		}
	}
}

// hasBell reports whether a worker has a doorbell. A bridge, which holds no lock while it checks in and has no
// pause between two check-ins, does not count as one that has.
func (h *hub) hasBell(w *worker) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return w.info.Instance == "" && len(h.bells.ofID[w.key.ID]) > 0
}

// doorbell serves a worker's websocket (codalab/bin/ws_server.py: worker_handler). Like CodaLab's own
// server, it takes the worker's id from the end of the path.
func (s *Server) doorbell(w http.ResponseWriter, r *http.Request) {
	const before = "/worker/"
	at := strings.LastIndex(r.URL.Path, before)
	if at < 0 || at+len(before) == len(r.URL.Path) {
		s.answerError(w, r, refuse(http.StatusNotFound, "Not found: '%s'", r.URL.Path))
		return
	}
	b, err := s.hub.addBell(r.URL.Path[at+len(before):], s.clientAddress(r))
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	defer s.hub.removeBell(b)
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	b.serve(context.WithoutCancel(r.Context()), c) // the request's context does not end with a websocket
}

// serve serves a doorbell until the worker or the server ends it, and closes its connection.
func (b *bell) serve(ctx context.Context, c *websocket.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer c.CloseNow() //nolint:errcheck // it may be closed already
	defer cancel()
	reading.Go(func() {
		defer cancel()
		readMessages(ctx, c)
	})
	for {
		select {
		case <-b.rung:
			if sendRing(ctx, c) != nil {
				return
			}
		case <-b.over:
			_ = c.Close(websocket.StatusGoingAway, "the server stops") // waits a few seconds for the worker
			return
		case <-ctx.Done():
			return
		}
	}
}

// readMessages reads what a worker sends until the connection ends. It reads one message a second, so that
// a client that sends many is slowed.
func readMessages(ctx context.Context, c *websocket.Conn) {
	c.SetReadLimit(bellReadLimit)
	pace := rate.NewLimiter(1, 20)
	for {
		waiting, stop := context.WithTimeout(ctx, bellReadTimeout)
		_, _, err := c.Read(waiting)
		stop()
		if err != nil || pace.Wait(ctx) != nil {
			return
		}
	}
}

// sendRing tells a worker to check in. CodaLab's worker does so for any text.
func sendRing(ctx context.Context, c *websocket.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, bellWriteTimeout)
	defer cancel()
	return c.Write(ctx, websocket.MessageText, []byte("check in")) //nolint:wrapcheck // only its presence counts
}
