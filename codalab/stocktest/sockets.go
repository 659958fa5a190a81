package stocktest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// The times for which the stock server tries to deliver a message
// (codalab/model/worker_model.py: send_json_message and its callers).
const (
	managerTimeout = time.Second
	relayTimeout   = 60 * time.Second
	messageRetry   = 300 * time.Millisecond
	streamRetry    = 3 * time.Millisecond
)

// socket brings messages to a worker, or a worker's answer to a reader. It is a Unix socket on
// the stock server.
type socket struct {
	id       int64
	worker   workerKey // the one that may reply on it
	listener *listener // the last one that began to listen
}

// listener is one party that listens on a socket. A new listener takes the socket over from
// the one before, which gets nothing from then on.
type listener struct {
	incoming chan io.Reader
	closed   chan struct{}
}

// openSocket makes a socket; the caller holds the lock.
func (s *Server) openSocket(k workerKey) *socket {
	s.number++
	sock := &socket{id: s.number, worker: k}
	s.sockets[sock.id] = sock
	return sock
}

func (s *Server) closeSocket(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sockets, id)
}

// listen begins to listen on a socket. The caller closes the listener.
func (s *Server) listen(id int64) *listener {
	l := &listener{incoming: make(chan io.Reader), closed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sock := s.sockets[id]; sock != nil {
		sock.listener = l
	}
	return l
}

func (l *listener) close() { close(l.closed) }

// accept waits for one message or stream; nil for none. A restart of the server breaks the
// connection of the request that waits.
func (s *Server) accept(l *listener, timeout time.Duration) io.Reader {
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	select {
	case r := <-l.incoming:
		return r
	case <-time.After(timeout):
		return nil
	case <-down:
		panic(http.ErrAbortHandler)
	}
}

// acceptJSON waits for one message and decodes it, and reports whether there was one.
func (s *Server) acceptJSON(l *listener, timeout time.Duration, v any) bool {
	r := s.accept(l, timeout)
	return r != nil && json.NewDecoder(r).Decode(v) == nil
}

// deliver hands something to the listener of a socket, and reports whether the listener took it
// in time.
func (s *Server) deliver(id int64, r io.Reader, timeout, retry time.Duration) bool {
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(retry) {
		s.mu.Lock()
		var l *listener
		if sock := s.sockets[id]; sock != nil {
			l = sock.listener
		}
		s.mu.Unlock()
		if l == nil {
			continue
		}
		select {
		case l.incoming <- r:
			return true
		case <-l.closed:
		}
	}
	return false
}

// send sends a message to a worker.
func (s *Server) send(id int64, message any, timeout time.Duration) bool {
	data, err := json.Marshal(message)
	return err == nil && s.deliver(id, bytes.NewReader(data), timeout, messageRetry)
}
