package client

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
)

// source is what a request's body is read from. net/http may go on reading a
// body after it has returned an answer; a source stops that, so that whoever
// passed the reader has it back when the call returns.
type source struct {
	reading chan struct{} // holds one token while the reader is in use
	r       io.Reader
	gone    atomic.Bool
	// touched says that something was read: the body cannot be sent again.
	touched atomic.Bool
	// whole says that it was read to its end.
	whole atomic.Bool
	// failure is the reader's own error, to be told from the connection's.
	failure atomic.Pointer[error]
}

func newSource(r io.Reader) *source {
	return &source{reading: make(chan struct{}, 1), r: r}
}

func (s *source) Read(p []byte) (int, error) {
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	if s.gone.Load() {
		return 0, io.ErrClosedPipe
	}
	s.touched.Store(true)
	n, err := s.r.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		s.whole.Store(true)
	case err != nil:
		s.failure.Store(&err)
	}
	return n, err
}

// leave ends all use of the reader. It waits for a read that is under way,
// but not for longer than its caller is willing to.
func (s *source) leave(ctx context.Context) {
	s.gone.Store(true)
	select {
	case s.reading <- struct{}{}:
		<-s.reading
	case <-ctx.Done():
	}
}
