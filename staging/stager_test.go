package staging

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// A transient failure must not end another download; a final one ends all.
func TestFailureThatMayPassLetsTheOthersFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, retry := range []bool{true, false} {
			finished := false
			err := all(t.Context(), 2, 2, func(ctx context.Context, i int) error {
				if i == 0 {
					return &transfer.Error{What: "x", Err: errors.New("no"), Retry: retry}
				}
				select {
				case <-ctx.Done():
					return &transfer.Error{What: "y", Err: ctx.Err(), Retry: true}
				case <-time.After(time.Hour):
					finished = true
					return nil
				}
			})
			var e *transfer.Error
			if !errors.As(err, &e) || e.What != "x" || finished != retry {
				t.Errorf("retry %v: error %v, the other finished: %v", retry, err, finished)
			}
		}
	})
}
