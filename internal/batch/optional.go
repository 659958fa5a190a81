package batch

import (
	"context"
	"errors"
	"sync"
	"time"
)

// AloneFor is the time for which a server without calls for several items is not asked for one again. It may be updated.
const AloneFor = 10 * time.Minute

// Optional makes calls at a server that may not have them. Each key, the name of a worker, has Calls of its own. If a call
// fails with errors.ErrUnsupported, each item has to go alone for ten minutes. It is safe for concurrent use.
type Optional[In, Out any] struct {
	now func() time.Time
	of  func(key string) *Calls[In, Out]

	mu    sync.Mutex
	calls map[string]*Calls[In, Out]
	// until is the time until which each item goes alone.
	until time.Time
}

// NewOptional returns the calls of all keys. The other arguments are as of New, for each key.
func NewOptional[In, Out any](now func() time.Time, atOnce int, fits func(items []In, more In) bool, call func(ctx context.Context, key string, items []In) ([]Out, error)) *Optional[In, Out] {
	o := &Optional[In, Out]{now: now, calls: map[string]*Calls[In, Out]{}}
	o.of = func(key string) *Calls[In, Out] {
		return New(atOnce, fits, func(ctx context.Context, items []In) ([]Out, error) {
			answers, err := call(ctx, key, items)
			if errors.Is(err, errors.ErrUnsupported) {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.until = o.now().Add(AloneFor)
			}
			return answers, err
		})
	}
	return o
}

// Alone reports whether each item has to go alone now.
func (o *Optional[In, Out]) Alone() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now().Before(o.until)
}

// Do is Calls.Do for a key. It fails with an errors.ErrUnsupported if the item has to go alone.
func (o *Optional[In, Out]) Do(ctx context.Context, key string, in In) (Out, error) {
	calls := o.callsOf(key)
	if calls == nil {
		var none Out
		return none, errors.ErrUnsupported
	}
	return calls.Do(ctx, in)
}

// callsOf returns the calls of a key; nil if each item has to go alone.
func (o *Optional[In, Out]) callsOf(key string) *Calls[In, Out] {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now().Before(o.until) {
		return nil
	}
	calls := o.calls[key]
	if calls == nil {
		calls = o.of(key)
		o.calls[key] = calls
	}
	return calls
}
