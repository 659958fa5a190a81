package sitepath

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
)

// stallTimeout is the time without progress of a disk after which a caller gives up.
const stallTimeout = 30 * time.Second

// Calls shares calls that read a disk. Callers with the same key share one call. The end of its
// callers does not end it, because nothing can end a call that hangs in a disk. Later callers join
// it, so a hanging disk holds one goroutine for each key. The zero Calls is ready for use. It is
// safe for concurrent use.
type Calls[V any] struct{ flights singleflight.Group }

// Do returns the result of call, or an error when ctx ends or when the call makes no progress for
// half a minute. progress returns the bytes that the call has read; nil means that they never grow.
func (c *Calls[V]) Do(ctx context.Context, key string, progress func() int64, call func() (V, error)) (V, error) {
	var none V
	result := c.flights.DoChan(key, func() (any, error) { return call() })
	timer := time.NewTimer(stallTimeout)
	defer timer.Stop()
	for last := int64(-1); ; {
		select {
		case r := <-result:
			v, _ := r.Val.(V)
			return v, r.Err
		case <-ctx.Done():
			return none, ctx.Err()
		case <-timer.C:
		}
		if progress == nil || progress() == last {
			return none, fmt.Errorf("the disk has not answered for %s", stallTimeout)
		}
		last = progress()
		timer.Reset(stallTimeout)
	}
}
