package diskspace_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

func TestDiskThatDoesNotAnswerIsAskedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, calls, answer := time.Now(), 0, make(chan struct{})
		q := diskspace.Question{Path: "/shared"}
		ask := func(ctx context.Context) (diskspace.Space, error) {
			return q.Ask(ctx, func() (diskspace.Space, error) {
				calls++
				<-answer
				return diskspace.Space{Free: 7}, nil
			})
		}
		for tries := range 3 {
			_, err := ask(t.Context())
			var silent *diskspace.SilentError
			if !errors.As(err, &silent) || silent.For != time.Duration(tries+1)*diskspace.SilentAfter || time.Since(began) != silent.For {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := ask(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end: %v", err)
		}
		close(answer)
		if s, err := ask(t.Context()); err != nil || s.Free != 7 || calls != 1 {
			t.Errorf("%+v, %v, %d calls", s, err, calls)
		}
		if s, err := ask(t.Context()); err != nil || s.Free != 7 || calls != 2 {
			t.Errorf("the next question: %+v, %v, %d calls", s, err, calls)
		}
	})
}

func TestPathThatIsNotThereHasAnswered(t *testing.T) {
	t.Parallel()
	for _, path := range []string{t.TempDir(), "/nonexistent"} {
		if err := diskspace.Answers(t.Context(), path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if err := diskspace.Await(t.Context(), path, func(e *diskspace.SilentError) { t.Error(e) }); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
