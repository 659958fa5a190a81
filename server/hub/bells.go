package hub

import (
	"context"
	"errors"
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
	// bellReadTimeout is the longest silence of a worker. CodaLab's worker sends a message every
	// ten seconds, but not while it checks in, and a check-in is held for some seconds.
	bellReadTimeout  = time.Minute
	bellWriteTimeout = 10 * time.Second
)

var (
	// ErrStopped means that the hub has stopped.
	ErrStopped = errors.New("the hub has stopped")
	// ErrTooMany means that too many doorbells are open.
	ErrTooMany = errors.New("too many doorbells are open")
)

// Bells are the doorbells: the websockets on which the hub tells a worker to check in now.
type Bells struct {
	open sync.WaitGroup

	mu        sync.Mutex
	ofID      map[string]map[*Bell]bool // by worker id
	ofAddress map[string]int            // the number of each client address
	all       int
	stopped   bool
}

// Bell is one doorbell.
type Bell struct {
	bells       *Bells
	id, address string
	rung        chan struct{} // gets an element when the bell rings; never closed
	over        chan struct{} // closed when the hub stops
}

// Add adds a doorbell of a worker id and a client's address. Its caller calls Close. It fails with
// ErrStopped or ErrTooMany.
func (v *Bells) Add(id, address string) (*Bell, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.stopped:
		return nil, ErrStopped
	case v.all >= maxBells, v.ofAddress[address] >= maxBellsOfAddress, len(v.ofID[id]) >= maxBellsOfID:
		return nil, ErrTooMany
	}
	b := &Bell{bells: v, id: id, address: address, rung: make(chan struct{}, 1), over: make(chan struct{})}
	if v.ofID[id] == nil {
		v.ofID[id] = map[*Bell]bool{}
	}
	v.ofID[id][b] = true
	v.ofAddress[address]++
	v.all++
	v.open.Add(1)
	return b, nil
}

// Close removes the doorbell.
func (b *Bell) Close() {
	v := b.bells
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.ofID[b.id], b)
	if len(v.ofID[b.id]) == 0 {
		delete(v.ofID, b.id)
	}
	if v.ofAddress[b.address]--; v.ofAddress[b.address] == 0 {
		delete(v.ofAddress, b.address)
	}
	v.all--
	v.open.Done()
}

// Wait waits until all doorbells are closed.
func (v *Bells) Wait() { v.open.Wait() }

func (v *Bells) stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stopped = true
	for _, some := range v.ofID {
		for b := range some {
			close(b.over)
		}
	}
}

// ring rings the doorbells with a worker's id.
func (v *Bells) ring(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for b := range v.ofID[id] {
		select {
		case b.rung <- struct{}{}:
		default: // it rings already
		}
	}
}

func (v *Bells) has(id string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.ofID[id]) > 0
}

// Serve serves the doorbell until the worker or the hub ends it, and closes its connection.
func (b *Bell) Serve(ctx context.Context, c *websocket.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer c.CloseNow() // it may be closed already
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
