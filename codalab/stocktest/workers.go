package stocktest

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// workerKey names a worker: ids are a user's own.
type workerKey struct{ user, id string }

// workerRow is a worker as its last check-in described it. Rows are compared by their address:
// a worker that was forgotten and comes back has a new row.
type workerRow struct {
	codalab.CheckIn
	key     workerKey
	socket  int64
	checkIn time.Time
}

// worker finds a worker, nil for none; the caller holds the lock.
func (s *Server) worker(k workerKey) *workerRow {
	for _, w := range s.workers {
		if w.key == k {
			return w
		}
	}
	return nil
}

// held lists the runs of a worker; the caller holds the lock.
func (s *Server) held(w *workerRow) []string {
	uuids := []string{}
	for uuid, holder := range s.runs {
		if holder == w {
			uuids = append(uuids, uuid)
		}
	}
	slices.Sort(uuids)
	return uuids
}

// forget removes a worker with its socket and its run rows; the caller holds the lock
// (codalab/model/worker_model.py: worker_cleanup).
func (s *Server) forget(w *workerRow) {
	for _, uuid := range s.held(w) {
		delete(s.runs, uuid)
	}
	delete(s.sockets, w.socket)
	s.workers = slices.DeleteFunc(s.workers, func(o *workerRow) bool { return o == w })
}

// checkIn is codalab/rest/workers.py: checkin.
func (s *Server) checkIn(w http.ResponseWriter, r *http.Request, u *account) error {
	var in struct {
		codalab.CheckIn
		Runs []json.RawMessage `json:"runs"`
	}
	if err := read(r, &in); err != nil {
		return err
	}
	if s.o.Faults.BeforeCheckIn != nil {
		s.o.Faults.BeforeCheckIn()
	}
	row := s.remember(workerKey{u.id, r.PathValue("worker")}, in.CheckIn)
	for _, run := range in.Runs {
		s.report(row, run)
	}
	// The server does not notice that the worker has closed the connection, and loses the
	// message of such a check-in.
	l := s.listen(row.socket)
	defer l.close()
	var message json.RawMessage // its numbers stay as they were written
	s.acceptJSON(l, hold, &message)
	return answerJSON(w, []json.RawMessage{message})
}

// remember records a worker's check-in.
func (s *Server) remember(k workerKey, in codalab.CheckIn) *workerRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.worker(k)
	if row == nil {
		row = &workerRow{key: k, socket: s.openSocket(k).id}
		s.workers = append(s.workers, row)
	}
	in.Reports = nil
	row.CheckIn, row.checkIn = in, time.Now()
	return row
}

// report applies a worker's report, if the server can read it and has the run.
func (s *Server) report(row *workerRow, run json.RawMessage) {
	r, err := readReport(run)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.bundle(r.UUID); b != nil {
		s.applyReport(b, r, row)
	}
}

// startBundle is codalab/rest/workers.py: start_bundle.
func (s *Server) startBundle(w http.ResponseWriter, r *http.Request, u *account) error {
	var in codalab.StartBundle
	if err := read(r, &in); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bundle(r.PathValue("uuid"))
	if b == nil {
		return refuse(http.StatusNotFound, "Could not find bundle with uuid %s", r.PathValue("uuid"))
	}
	if !u.owns(b) {
		return refuse(http.StatusForbidden, "User does not have permission to run bundle.")
	}
	return answerJSON(w, s.preparing(b, s.worker(workerKey{u.id, r.PathValue("worker")}), in))
}

// mayReply returns a socket on which a worker may reply (codalab/rest/workers.py:
// check_reply_permission).
func (s *Server) mayReply(r *http.Request, u *account) (int64, error) {
	id, err := strconv.ParseInt(r.PathValue("socket"), 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	sock := s.sockets[id]
	if err != nil || sock == nil || sock.worker != (workerKey{u.id, r.PathValue("worker")}) {
		return 0, refuse(http.StatusForbidden, "Not your socket ID!")
	}
	return id, nil
}

// reply is codalab/rest/workers.py: reply. It succeeds even if no reader took the answer.
func (s *Server) reply(_ http.ResponseWriter, r *http.Request, u *account) error {
	id, err := s.mayReply(r, u)
	if err != nil {
		return err
	}
	var in any
	if err := read(r, &in); err != nil {
		return err
	}
	s.send(id, in, relayTimeout)
	return nil
}

// replyData is codalab/rest/workers.py: reply_data.
func (s *Server) replyData(_ http.ResponseWriter, r *http.Request, u *account) error {
	query := r.URL.Query()
	if !query.Has("header_message") {
		return refuse(http.StatusBadRequest, "Missing header message.")
	}
	var header any
	if json.Unmarshal([]byte(query.Get("header_message")), &header) != nil {
		return refuse(http.StatusBadRequest, "Header message should be in JSON format.")
	}
	id, err := s.mayReply(r, u)
	if err != nil {
		return err
	}
	s.send(id, header, relayTimeout)
	body, feed := io.Pipe()
	if !s.deliver(id, body, relayTimeout, streamRetry) {
		return nil
	}
	_, err = io.Copy(feed, r.Body)
	feed.CloseWithError(err)
	return err
}
