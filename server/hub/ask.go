package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
)

// ErrMoved means that a bundle stopped running while its worker was asked for its files: they
// are elsewhere now.
var ErrMoved = errors.New("the bundle has stopped running")

// MostRequests bounds the requests that wait for the replies of one worker. Whoever may read a bundle may cause
// some, and the worker gets all of them in one answer.
const MostRequests = 200

// ErrBusy means that MostRequests requests wait for the worker's replies.
var ErrBusy = errors.New("the worker has to reply to other requests first")

const (
	// ReplyTimeout is the time within which a worker must reply to a request.
	ReplyTimeout = time.Minute
	// AwayAfter is the time within which a worker with a message must check in; after it the worker counts
	// as away. CodaLab's own worker checks in every 5 s, after a check-in that is held for up to 5 s, and
	// when its doorbell rings (codalab/worker/main.py: --checkin-frequency-seconds).
	AwayAfter = 15 * time.Second
)

// ErrAway means that the worker of a run has not checked in lately.
var ErrAway = errors.New("the worker is away")

// ErrSlow means that a worker has not replied within ReplyTimeout.
var ErrSlow = errors.New("the worker does not reply")

// RefusedError is the reply of a worker that cannot do what it was asked.
type RefusedError struct {
	Code    int // an HTTP status
	Message string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("status %d: %s", e.Code, e.Message) }

// Request is a read or netcat message to a worker: for files of a running bundle, or to talk with its
// container. The hub's lock guards sent.
type Request struct {
	worker  *worker
	message codalab.Message
	sent    time.Time
	replies chan Reply // has room for the one reply
	// abandoned is closed when no caller waits for the reply any more.
	abandoned chan struct{}
}

// Reply is a worker's reply to a Request.
type Reply struct {
	codalab.ReadReply
	// Data is the reply's stream; nil if it has none. Done says that no more of it is needed; nil without Data.
	Data io.Reader
	Done func()
	// moved means that the bundle is not running any more.
	moved bool
}

// Kind returns the type of the message to which the worker replies.
func (r *Request) Kind() codalab.MessageType { return r.message.Type }

// Reply gives the reply to the caller of Ask. It is called once.
func (r *Request) Reply(reply Reply) { r.replies <- reply }

// Abandoned is closed when no caller waits for the reply any more.
func (r *Request) Abandoned() <-chan struct{} { return r.abandoned }

// away reports whether the worker is known to be away.
func (h *Hub) away(key plan.Worker, now time.Time) bool { return h.Silent(key, now) > h.timeout }

// Ask sends a read or netcat message to the worker that has the message's bundle, and waits for the
// reply. The caller calls the reply's Done, if it is set. Ask fails with ErrAway, ErrBusy, ErrSlow, a
// RefusedError, or ErrMoved if the bundle stops running.
func (h *Hub) Ask(ctx context.Context, key plan.Worker, m codalab.Message, now func() time.Time) (Reply, error) {
	asked := now()
	if h.away(key, asked) {
		return Reply{}, ErrAway
	}
	r, err := h.addRequest(m)
	if err != nil {
		return Reply{}, err
	}
	away, timeout := time.NewTimer(AwayAfter), time.NewTimer(ReplyTimeout)
	defer away.Stop()
	defer timeout.Stop()
	for err == nil {
		select {
		case reply := <-r.replies:
			return reply.checked()
		case <-away.C:
			if !h.seen(key).After(asked) {
				err = ErrAway
			}
		case <-timeout.C:
			err = ErrSlow
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	h.dropRequest(r)
	return Reply{}, err
}

// checked returns a worker's reply, or its error.
func (r Reply) checked() (Reply, error) {
	const noLongerRunning = "Bundle no longer running" // codalab/worker/download_util.py
	moved := r.moved || r.ErrorMessage == noLongerRunning
	if r.Done != nil && (r.ErrorCode != 0 || moved) {
		r.Done() // no caller needs the stream
	}
	switch {
	case moved:
		return Reply{}, ErrMoved
	case r.ErrorCode != 0:
		return Reply{}, &RefusedError{Code: r.ErrorCode, Message: r.ErrorMessage}
	}
	return r, nil
}

// addRequest queues a message for the worker that has the bundle. It fails with ErrMoved if none has it any
// more, or with ErrBusy.
func (h *Hub) addRequest(m codalab.Message) (*Request, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.workerOf[m.UUID]
	switch {
	case w == nil:
		return nil, ErrMoved
	case len(w.requests) >= MostRequests:
		return nil, ErrBusy
	}
	h.lastRequest++
	m.SocketID = h.lastRequest
	r := &Request{
		worker: w, message: m,
		replies: make(chan Reply, 1), abandoned: make(chan struct{}),
	}
	w.requests[h.lastRequest] = r
	h.notify(w)
	return r, nil
}

// TakeRequest returns the Request to which a worker replies, by its message's SocketID, and removes it; nil if
// there is none.
func (h *Hub) TakeRequest(key plan.Worker, id int64) *Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	w, ok := h.workers[key]
	if !ok {
		return nil
	}
	r := w.requests[id]
	delete(w.requests, id)
	return r
}

// dropRequest removes a Request for which no caller waits any more.
func (h *Hub) dropRequest(r *Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(r.worker.requests, r.message.SocketID)
	close(r.abandoned)
}

// dropRequests ends the requests for a bundle that has stopped running. The caller holds the hub's
// lock.
func (w *worker) dropRequests(uuid string) {
	for id, r := range w.requests {
		if r.message.UUID == uuid {
			delete(w.requests, id)
			r.replies <- Reply{moved: true}
		}
	}
}

// write is a write message that its worker gets once. The hub's lock guards it.
type write struct {
	message codalab.Message
	sent    chan struct{} // closed once the message is in an answer to the worker
}

// Tell sends a message to the worker that has the message's bundle, once, and waits until it is in an
// answer to a check-in. The worker does not say whether it did what the message says. Tell fails with
// ErrMoved if no worker has the bundle, or with ErrAway.
func (h *Hub) Tell(ctx context.Context, key plan.Worker, m codalab.Message, now func() time.Time) error {
	if h.away(key, now()) {
		return ErrAway
	}
	r, drop := h.addWrite(m)
	if r == nil {
		return ErrMoved
	}
	defer drop()
	away := time.NewTimer(AwayAfter)
	defer away.Stop()
	select {
	case <-r.sent:
		return nil
	case <-away.C:
		return ErrAway
	case <-ctx.Done():
		return ctx.Err()
	}
}

// addWrite queues a message for the worker that has the bundle. It returns nil if there is none.
func (h *Hub) addWrite(m codalab.Message) (r *write, drop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.workerOf[m.UUID]
	if w == nil {
		return nil, nil
	}
	r = &write{message: m, sent: make(chan struct{})}
	w.writes = append(w.writes, r)
	h.notify(w)
	return r, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		w.writes = slices.DeleteFunc(w.writes, func(other *write) bool { return other == r })
	}
}
