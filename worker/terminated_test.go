package worker

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

func TestTERMThatEndsTheCommandBeforeItsWorkerGetsItIsTheJobs(t *testing.T) {
	t.Parallel()
	term, failed := container.Exit{Code: 143, Signal: int(syscall.SIGTERM)}, container.Exit{Code: 5}
	const never = time.Hour
	for name, c := range map[string]struct {
		exit        container.Exit
		after, took time.Duration
		byWorker    bool
		want        bool
	}{
		"a moment later":             {term, time.Second, time.Second, false, true},
		"not at all":                 {term, never, ownTermPatience, false, false},
		"not at all: a limit":        {term, never, 0, true, false},
		"a moment after another end": {failed, time.Second, 0, false, false},
		"before":                     {failed, 0, 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.after)
				defer cancel()
				limited, stop := context.WithCancel(ctx)
				defer stop()
				if c.byWorker {
					stop()
				}
				began := time.Now()
				if got := wasTerminated(ctx, limited, c.exit); got != c.want || time.Since(began) != c.took {
					t.Errorf("%v after %s, want %v after %s", got, time.Since(began), c.want, c.took)
				}
			})
		})
	}
}
