package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// errMoved means that a bundle stopped running while its worker was asked for its files: they
// are elsewhere now.
var errMoved = errors.New("the bundle has stopped running")

// mostReads is how many reads may wait for one worker's answers. Whoever may read a bundle may cause
// some, and the worker gets all of them in one answer.
const mostReads = 200

const (
	// readTimeout is how long a worker may take to answer a read.
	readTimeout = time.Minute
	// awayAfter is how long a worker with a message may not check in before it counts as away. CodaLab's
	// own worker checks in every 5 s, after a check-in that is held for up to 5 s, and when its doorbell
	// rings (codalab/worker/main.py: --checkin-frequency-seconds).
	awayAfter = 15 * time.Second
)

// readRequest is a request to a worker for files of a running bundle. The hub's lock guards sent.
type readRequest struct {
	worker  *worker
	message codalab.Message
	sent    time.Time
	answers chan readAnswer // has room for the one answer
	// abandoned is closed when no caller waits for the answer any more.
	abandoned chan struct{}
}

// readAnswer is a worker's reply to a read.
type readAnswer struct {
	codalab.ReadReply
	// data is the reply's stream, if it has one. The receiver then calls done when it needs no
	// more of it.
	data io.Reader
	done func()
	// moved means that the bundle is not running any more.
	moved bool
}

// addRead queues a read or netcat message for the worker that has the bundle. It fails with errMoved if
// none has it any more.
func (h *hub) addRead(m codalab.Message) (*readRequest, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.holders[m.UUID]
	switch {
	case w == nil:
		return nil, errMoved
	case len(w.reads) >= mostReads:
		return nil, refuseNow("The worker that has bundle %s has to answer %d other requests first. Try again later.", m.UUID, mostReads)
	}
	h.nextRead++
	m.SocketID = h.nextRead
	r := &readRequest{
		worker: w, message: m,
		answers: make(chan readAnswer, 1), abandoned: make(chan struct{}),
	}
	w.reads[h.nextRead] = r
	h.notify(w)
	return r, nil
}

// seen returns when a worker last checked in; for one that has not since the server started, when that
// was.
func (h *hub) seen(key plan.Worker) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.workers[key]; w != nil {
		return w.seen
	}
	return h.started
}

// refuseNow refuses what only a run's worker can do, and what it may do later. The status is 404: for
// another one, CodaLab's own cl shows nothing of a bundle whose worker is away, and for 404 all but its
// files (codalab/lib/bundle_cli.py: print_target_info).
func refuseNow(format string, args ...any) error {
	return &refusal{status: http.StatusNotFound, message: fmt.Sprintf(format, args...), later: true}
}

// awayRefusal refuses what the worker of a run has to do, which is away.
func (s *Server) awayRefusal(b store.Bundle) error {
	silent := s.Now().Sub(s.hub.seen(plan.Worker(b.Worker))).Truncate(time.Second)
	return refuseNow("Worker %s, which has bundle %s, has not been heard of for %s. The run itself may go on. Its files can be read and written when the worker is back.",
		b.Worker.ID, b.UUID, silent)
}

// isAway reports whether the worker of a run is known to be away.
func (s *Server) isAway(b store.Bundle) bool {
	return s.Now().Sub(s.hub.seen(plan.Worker(b.Worker))) > s.WorkerTimeout
}

// claimRead returns the read that a worker answers and removes it; nil if there is none.
func (h *hub) claimRead(key plan.Worker, id int64) *readRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	w, ok := h.workers[key]
	if !ok {
		return nil
	}
	r := w.reads[id]
	delete(w.reads, id)
	return r
}

// dropRead removes a read for which no caller waits any more.
func (h *hub) dropRead(r *readRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(r.worker.reads, r.message.SocketID)
	close(r.abandoned)
}

// dropReads ends the reads of a bundle that has stopped running. The caller holds the hub's
// lock.
func (w *worker) dropReads(uuid string) {
	for id, r := range w.reads {
		if r.message.UUID == uuid {
			delete(w.reads, id)
			r.answers <- readAnswer{moved: true}
		}
	}
}

// readFromWorker sends a read to a running bundle's worker and waits for the answer. The
// caller calls the answer's done, if it is set. It fails with errMoved if the bundle stops
// running meanwhile.
func (s *Server) readFromWorker(ctx context.Context, b store.Bundle, path string, args codalab.ReadArgs) (readAnswer, error) {
	return s.askWorker(ctx, b, codalab.Message{Type: codalab.MessageRead, UUID: b.UUID, Path: path, ReadArgs: &args})
}

// askWorker is readFromWorker for any message that a worker answers.
func (s *Server) askWorker(ctx context.Context, b store.Bundle, m codalab.Message) (readAnswer, error) {
	if s.isAway(b) {
		return readAnswer{}, s.awayRefusal(b)
	}
	asked := s.Now()
	r, err := s.hub.addRead(m)
	if err != nil {
		return readAnswer{}, err
	}
	away, timeout := time.NewTimer(awayAfter), time.NewTimer(readTimeout)
	defer away.Stop()
	defer timeout.Stop()
	for err == nil {
		select {
		case a := <-r.answers:
			return a.checked()
		case <-away.C:
			if !s.hub.seen(plan.Worker(b.Worker)).After(asked) {
				err = s.awayRefusal(b)
			}
		case <-timeout.C:
			err = refuseNow("Worker %s, which has bundle %s, did not answer within %s.", b.Worker.ID, b.UUID, readTimeout)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	s.hub.dropRead(r)
	return readAnswer{}, err
}

// checked returns a worker's answer, or its error.
func (a readAnswer) checked() (readAnswer, error) {
	const noLongerRunning = "Bundle no longer running" // codalab/worker/download_util.py
	moved := a.moved || a.ErrorMessage == noLongerRunning
	if a.done != nil && (a.ErrorCode != 0 || moved) {
		a.done() // no caller needs the stream
	}
	switch {
	case moved:
		return readAnswer{}, errMoved
	case a.ErrorCode != 0:
		return readAnswer{}, refuse(a.ErrorCode, "%s", a.ErrorMessage)
	}
	return a, nil
}

// requestedRead returns the read that a worker's request answers.
func (s *Server) requestedRead(r *http.Request, u store.User) (*readRequest, error) {
	id, err := strconv.ParseInt(r.PathValue("socket"), 10, 64)
	if err != nil {
		return nil, refuse(http.StatusNotFound, "Not found: '%s'", r.URL.Path)
	}
	found := s.hub.claimRead(plan.Worker{User: u.ID, ID: r.PathValue("worker")}, id)
	if found == nil {
		return nil, refuse(http.StatusForbidden, "Not your socket ID!")
	}
	return found, nil
}

// reply passes on a worker's answer that has no stream (codalab/rest/workers.py: reply).
func (s *Server) reply(w http.ResponseWriter, r *http.Request, u store.User) error {
	var in codalab.ReadReply
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	if in.ErrorCode != 0 && (in.ErrorCode < 400 || in.ErrorCode > 599) {
		return refuse(http.StatusBadRequest, "An error_code is between 400 and 599")
	}
	found, err := s.requestedRead(r, u)
	if err != nil {
		return err
	}
	if in.TargetInfo == nil && in.ErrorCode == 0 && found.message.Type != codalab.MessageNetcat {
		in = codalab.ReadReply{ErrorCode: http.StatusBadGateway, ErrorMessage: "The worker's reply is empty"}
	}
	found.answers <- readAnswer{ReadReply: in}
	return nil
}

// replyData passes on a worker's stream, as fast as the caller of the read takes it
// (codalab/rest/workers.py: reply_data).
func (s *Server) replyData(_ http.ResponseWriter, r *http.Request, u store.User) error {
	header := r.URL.Query().Get("header_message")
	if header == "" {
		return refuse(http.StatusBadRequest, "Missing header message.")
	}
	var in codalab.ReadReply
	if json.Unmarshal([]byte(header), &in) != nil {
		return refuse(http.StatusBadRequest, "Header message should be in JSON format.")
	}
	if in.ErrorCode != 0 && (in.ErrorCode < 400 || in.ErrorCode > 599) {
		return refuse(http.StatusBadRequest, "An error_code is between 400 and 599")
	}
	found, err := s.requestedRead(r, u)
	if err != nil {
		return err
	}
	ctx, done := context.WithCancel(r.Context())
	defer done()
	found.answers <- readAnswer{ReadReply: in, data: r.Body, done: done}
	select {
	case <-ctx.Done(): // the caller is done, or the worker has gone
		return nil
	case <-found.abandoned:
		return refuse(http.StatusGone, "No client waits for this answer any more")
	}
}
