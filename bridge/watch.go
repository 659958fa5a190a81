package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

func errorAttr(err error) slog.Attr { return slog.String("error", err.Error()) }

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
