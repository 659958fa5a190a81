package stocktest

import (
	"errors"
	"io"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// noLongerRunning is the answer of a worker that does not have the run
// (codalab/worker/download_util.py: BUNDLE_NO_LONGER_RUNNING_MESSAGE).
const noLongerRunning = "Bundle no longer running"

// retryIfEnded calls ask, and calls it once more if the run ended during the call
// (codalab/lib/download_manager.py: retry_if_no_longer_running).
func retryIfEnded[T any](ask func() (T, error)) (T, error) {
	v, err := ask()
	if err != nil && err.Error() == noLongerRunning {
		return ask()
	}
	return v, err
}

// readMessage is a read message with the arguments of its kind.
func readMessage(socket int64, t codalab.Target, args codalab.ReadArgs) any {
	wanted := map[string]any{"type": args.Type}
	switch args.Type {
	case codalab.ReadTargetInfo:
		wanted["depth"] = args.Depth
	case codalab.ReadFileSection:
		wanted["offset"], wanted["length"] = args.Offset, args.Length
	case codalab.ReadSummary:
		wanted["num_head_lines"], wanted["num_tail_lines"] = args.HeadLines, args.TailLines
		wanted["max_line_length"], wanted["truncation_text"] = args.MaxLineLength, args.TruncationText
	case codalab.ReadFile, codalab.ReadDirectory:
	}
	return map[string]any{"type": codalab.MessageRead, "socket_id": socket, "uuid": t.BundleUUID, "path": t.Subpath, "read_args": wanted}
}

// relay sends a worker a message that names a new socket, and listens there for the answer.
// The caller calls done.
func (s *Server) relay(w *workerRow, message func(socket int64) any) (l *listener, done func(), err error) {
	if w == nil {
		return nil, nil, errors.New("'NoneType' object is not subscriptable") // as the stock server says it
	}
	s.mu.Lock()
	id := s.openSocket(w.key).id
	s.mu.Unlock()
	s.send(w.socket, message(id), relayTimeout)
	l = s.listen(id)
	return l, func() {
		l.close()
		s.closeSocket(id)
	}, nil
}

func (s *Server) describeRunning(w *workerRow, t codalab.Target, depth int) (codalab.TargetInfo, error) {
	l, done, err := s.relay(w, func(id int64) any {
		return readMessage(id, t, codalab.ReadArgs{Type: codalab.ReadTargetInfo, Depth: depth})
	})
	if err != nil {
		return codalab.TargetInfo{}, err
	}
	defer done()
	var reply codalab.ReadReply
	if !s.acceptJSON(l, relayTimeout, &reply) {
		return codalab.TargetInfo{}, refuse(http.StatusNotFound, "Unable to reach worker of running bundle with bundle state running")
	}
	if reply.ErrorCode != 0 || reply.TargetInfo == nil {
		return codalab.TargetInfo{}, workersError(reply)
	}
	return *reply.TargetInfo, nil
}

// workersError is an error that a worker answers with (codalab/common.py:
// http_error_to_exception).
func workersError(r codalab.ReadReply) error {
	switch {
	case r.ErrorCode >= 500:
		return errors.New(r.ErrorMessage)
	case r.ErrorCode == http.StatusForbidden, r.ErrorCode == http.StatusUnauthorized, r.ErrorCode == http.StatusNotFound:
		return refuse(r.ErrorCode, "%s", r.ErrorMessage)
	}
	return refuse(http.StatusBadRequest, "%s", r.ErrorMessage)
}

// fetch asks a worker for data, which the caller closes (codalab/lib/download_manager.py:
// _get_read_response_stream).
func (s *Server) fetch(w *workerRow, message func(socket int64) any) (io.ReadCloser, error) {
	l, done, err := s.relay(w, message)
	if err != nil {
		return nil, err
	}
	var header codalab.ReadReply
	if !s.acceptJSON(l, relayTimeout, &header) {
		done()
		return nil, errors.New("Unable to reach worker")
	}
	if header.ErrorCode != 0 {
		done()
		return nil, workersError(header)
	}
	r := s.accept(l, relayTimeout)
	if r == nil {
		done()
		return nil, errors.New("Unable to reach worker")
	}
	return &fetched{r, done}, nil
}

type fetched struct {
	io.Reader
	done func()
}

// Close ends the reading, and the worker's writing with it.
func (f *fetched) Close() error {
	defer f.done()
	if c, ok := f.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
