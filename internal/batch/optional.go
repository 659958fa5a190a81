package batch

import (
	"context"
	"errors"
	"sync"
	"time"
)

// AloneFor is the time for which a server without calls for several items is not asked for one again. It may be updated.
const AloneFor = 10 * time.Minute

// Optional makes calls at a server that may not have them: CodaLab's own has none for several items. Each key, the name of a
// worker, has Calls of its own. If a call fails with errors.ErrUnsupported, each item has to go alone for ten minutes. Until a call
// has succeeded, one is under way at a time, whatever the key: such a server gets one, however many callers wait, for their items
// cross the network in vain. It is safe for concurrent use.
type Optional[In, Out any] struct {
	now func() time.Time
	of  func(key string) *Calls[In, Out]
	// asking has an element while a call is under way that shows whether the server has such calls.
	asking chan struct{}

	mu    sync.Mutex
	calls map[string]*Calls[In, Out]
	// has is set when a call has succeeded. until is the time until which each item goes alone.
	has   bool
	until time.Time
}

// Requests are the calls of Optional. Several makes a call for items, as New's call. Single makes one for a single item, which
// each server has; nil if Several does that, too.
type Requests[In, Out any] struct {
	Several func(ctx context.Context, key string, items []In) ([]Out, error)
	Single  func(ctx context.Context, key string, item In) (Out, error)
}

// NewOptional returns the calls of all keys. atOnce and fits are as of New, for each key.
func NewOptional[In, Out any](now func() time.Time, atOnce int, fits func(items []In, more In) bool, call Requests[In, Out]) *Optional[In, Out] {
	o := &Optional[In, Out]{now: now, asking: make(chan struct{}, 1), calls: map[string]*Calls[In, Out]{}}
	o.of = func(key string) *Calls[In, Out] {
		return New(atOnce, fits, func(ctx context.Context, items []In) ([]Out, error) {
			if call.Single != nil && len(items) == 1 {
				answer, err := call.Single(ctx, key, items[0])
				return []Out{answer}, err
			}
			return o.ask(ctx, func() ([]Out, error) { return call.Several(ctx, key, items) })
		})
	}
	return o
}

// ask makes a call, and learns from it whether the server has such calls.
func (o *Optional[In, Out]) ask(ctx context.Context, call func() ([]Out, error)) ([]Out, error) {
	if !o.known() {
		select {
		case o.asking <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		defer func() { <-o.asking }()
	}
	if o.Alone() {
		return nil, errors.ErrUnsupported
	}
	answers, err := call()
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		o.has, o.until = false, o.now().Add(AloneFor)
	case err == nil:
		o.has = true
	}
	return answers, err
}

func (o *Optional[In, Out]) known() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.has
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
