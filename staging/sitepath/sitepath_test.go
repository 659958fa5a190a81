package sitepath_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/staging/sitepath"
)

func TestDiskThatHangsBlocksNoCallerForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c sitepath.Calls[int]
		answers, begun := make(chan struct{}), time.Now()
		calls := 0
		hang := func() (int, error) {
			calls++
			<-answers
			return 7, nil
		}
		if _, err := c.Do(t.Context(), "a", nil, hang); err == nil || !sitepath.IsTransient(err) || time.Since(begun) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Do(ctx, "a", nil, hang); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the caller had gone: %v", err)
		}
		time.AfterFunc(time.Minute, func() { close(answers) })
		var read int64
		progress := func() int64 { read++; return read }
		if v, err := c.Do(t.Context(), "a", progress, hang); v != 7 || err != nil || calls != 1 {
			t.Errorf("%d, %v, %d calls; want the answer of the first call", v, err, calls)
		}
	})
}
