package client

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
)

// uploadBody is the body of an upload. net/http may go on reading a body after it has returned
// an answer. leave ends that, so that the call's caller can use its reader again.
type uploadBody struct {
	reading chan struct{} // holds an element while the reader is in use
	r       io.Reader
	left    atomic.Bool
	// begun is set after the first Read: the body cannot be sent again.
	begun atomic.Bool
	// whole is set once the reader has returned io.EOF.
	whole atomic.Bool
	// failure is the reader's own error, as opposed to one of the connection.
	failure atomic.Pointer[error]
}

func newUploadBody(r io.Reader) *uploadBody {
	return &uploadBody{reading: make(chan struct{}, 1), r: r}
}

func (s *uploadBody) Read(p []byte) (int, error) {
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	if s.left.Load() {
		return 0, io.ErrClosedPipe
	}
	s.begun.Store(true)
	n, err := s.r.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		s.whole.Store(true)
	case err != nil:
		s.failure.Store(&err)
	}
	return n, err
}

// leave ends all use of the reader. It waits for a Read under way until ctx ends.
func (s *uploadBody) leave(ctx context.Context) {
	s.left.Store(true)
	select {
	case s.reading <- struct{}{}:
		<-s.reading
	case <-ctx.Done():
	}
}
