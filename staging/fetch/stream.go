package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// silence is the time without data after which a stream counts as broken.
const silence = 2 * time.Minute

var errSilent = errors.New("it has sent nothing for two minutes")

// stream is an incoming stream of contents. Its errors wrap ErrBroken, or are those of its context.
type stream struct {
	*client.Contents

	paced  io.Reader
	silent *time.Timer
	cause  func() error // returns the cause of the context's end
	broken error        // the last error of Read except io.EOF
	close  func()
}

func (r *session) openStream(ctx context.Context, t codalab.Target, part *client.Range) (*stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	contents, err := r.From.OpenContents(ctx, t, part)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	s := &stream{Contents: contents, silent: time.AfterFunc(silence, func() { cancel(errSilent) })}
	s.cause = func() error { return context.Cause(ctx) }
	s.close = func() {
		s.silent.Stop()
		_ = contents.Close() // only read
		cancel(nil)
	}
	s.paced = arriving{s}
	if r.Reader != nil {
		s.paced = r.Reader(ctx, s.paced)
	}
	return s, nil
}

// Read reads at the given pace.
func (s *stream) Read(b []byte) (int, error) { return s.paced.Read(b) }

// arriving reads from the network without a pace.
type arriving struct{ *stream }

// Read reads arrived data. It does not count the time between reads as the server's silence.
func (s arriving) Read(b []byte) (int, error) {
	s.silent.Reset(silence)
	n, err := s.Contents.Read(b)
	s.silent.Stop()
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	switch cause := s.cause(); {
	case errors.Is(cause, errSilent):
		err = fmt.Errorf("%w: %w", ErrBroken, errSilent)
	case cause != nil:
		err = cause
	default:
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	s.broken = err
	return n, err
}
