package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

func errorAttr(err error) slog.Attr { return slog.String("error", err.Error()) }

// jobAttr returns the attribute of a job in the log, or an empty one, which slog leaves out, if there is no job.
func jobAttr(id sbatch.JobID) slog.Attr {
	if id == 0 {
		return slog.Attr{}
	}
	return slog.String("job", id.String())
}

// every calls fn at once and then after each pause, until ctx ends.
func every(ctx context.Context, pause time.Duration, clock func() time.Time, fn func(now time.Time)) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		fn(clock())
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// tryEvery calls do at once and after each pause, until ctx ends, and warn for the first one of failures in a row.
func tryEvery(ctx context.Context, pause time.Duration, clock func() time.Time, do func(now time.Time) error, warn func(error)) error {
	broken := false
	return every(ctx, pause, clock, func(now time.Time) {
		err := do(now)
		if err != nil && !broken {
			warn(err)
		}
		broken = err != nil
	})
}
