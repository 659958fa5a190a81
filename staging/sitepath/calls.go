package sitepath

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
)

// stallTimeout is how long a disk may make no progress before a caller gives up.
const stallTimeout = 30 * time.Second

// Calls shares calls that read a disk. Callers with the same key share a call. No caller
// ends it, as nothing can end a call that hangs in a disk: it goes on when its callers have
// gone, and later callers join it, so that a disk that hangs holds one goroutine for each
// key. The zero Calls is ready for use; it is safe for concurrent use.
type Calls[V any] struct{ flights singleflight.Group }

// Do returns what call returns, or an error once ctx has ended or the call has made no
// progress for half a minute. progress counts what the call has read; nil never grows.
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
