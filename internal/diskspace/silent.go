package diskspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// SilentAfter bounds the time to answer; a disk that takes longer counts as silent. A call on a disk that
// is mounted hard does not return until the file server answers, and only KILL ends it.
const SilentAfter = 5 * time.Second

// SilentError means that a disk does not answer.
type SilentError struct {
	Path string
	// For is the duration of the wait for a call that has not returned.
	For time.Duration
}

// Error names the disk.
func (e *SilentError) Error() string {
	return fmt.Sprintf("the disk of %s does not answer (a call has not returned for %s)", e.Path, e.For)
}

// Transient reports that the disk may answer later.
func (*SilentError) Transient() bool { return true }

// Question is a question to a disk that may not answer. Its method is not safe for concurrent use.
type Question struct {
	// Path is the disk's.
	Path string

	call   *call         // has not returned; nil if all have
	waited time.Duration // for that call
}

type call struct {
	ended <-chan struct{}
	space Space // as err, once ended is closed
	err   error
}

// Ask returns the result of space, or after SilentAfter a *SilentError. Then the call continues in its
// own goroutine, and the next Ask waits for it instead of starting another one.
func (q *Question) Ask(ctx context.Context, space func() (Space, error)) (Space, error) {
	if q.call == nil {
		c := &call{}
		c.ended = background.Go(func() { c.space, c.err = space() }) // a disk that never answers keeps it
		q.call, q.waited = c, 0
	}
	late := time.NewTimer(SilentAfter)
	defer late.Stop()
	select {
	case <-q.call.ended:
		c := q.call
		q.call = nil
		return c.space, c.err
	case <-ctx.Done():
		return Space{}, fmt.Errorf("measure the disk of %s: %w", q.Path, ctx.Err())
	case <-late.C:
		q.waited += SilentAfter
		return Space{}, &SilentError{q.Path, q.waited}
	}
}

// Answers returns a *SilentError if the disk of path does not answer, and ctx's error if ctx ends before
// that is known. A path that does not exist, or may not be read, has answered.
func Answers(ctx context.Context, path string) error {
	q := Question{Path: path}
	return q.touch(ctx)
}

// touch is Ask for callers that only need an answer, not the space.
func (q *Question) touch(ctx context.Context) error {
	_, err := q.Ask(ctx, func() (Space, error) {
		if _, err := os.Stat(q.Path); err == nil { // else it has answered
			_, _ = Of(q.Path) // as here
		}
		return Space{}, nil
	})
	return err
}

// Await waits until the disk of path answers or ctx ends. It calls silent once if the disk does not
// answer at first.
func Await(ctx context.Context, path string, silent func(*SilentError)) error {
	q := Question{Path: path}
	for told := false; ; told = true {
		err := q.touch(ctx)
		var is *SilentError
		if !errors.As(err, &is) {
			return err
		}
		if !told {
			silent(is)
		}
	}
}
