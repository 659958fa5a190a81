// Package pause waits for a while, or until a context ends.
package pause

import (
	"context"
	"time"
)

// For returns nil once d has passed, or ctx.Err() if ctx ends first. With a d of zero or
// less it returns at once.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
