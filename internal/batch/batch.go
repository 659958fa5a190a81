// Package batch lets goroutines share calls: those that wait for a call at the same time are served by the next one
// together. A caller that finds no call under way is served at once, alone.
package batch

import (
	"context"
	"slices"
	"sync"
)

// Calls makes calls for several items each. It is safe for concurrent use.
type Calls[In, Out any] struct {
	fits func(items []In, more In) bool
	call func(ctx context.Context, items []In) ([]Out, error)
	// calling has an element for each call under way.
	calling chan struct{}

	mu      sync.Mutex
	waiting []*item[In, Out]
}

// item is an item of a caller that waits. taken is closed when a call has it, and over when that call has ended.
type item[In, Out any] struct {
	in    In
	out   Out
	err   error
	taken chan struct{}
	over  chan struct{}
}

// New returns Calls of which atOnce are under way at most. fits reports whether a call with these items, which are one or
// more, has room for another one; the items of a call keep the order in which they came. call makes a call. It returns an
// answer for each item, in their order, or an error, which each of their callers gets.
func New[In, Out any](atOnce int, fits func(items []In, more In) bool, call func(ctx context.Context, items []In) ([]Out, error)) *Calls[In, Out] {
	return &Calls[In, Out]{fits: fits, call: call, calling: make(chan struct{}, atOnce)}
}

// Do returns the answer for an item. It fails with the error of ctx when that ends before. The call has the context of one of
// its callers: if that one ends, the others get its error, too.
func (c *Calls[In, Out]) Do(ctx context.Context, in In) (Out, error) {
	one := &item[In, Out]{in: in, taken: make(chan struct{}), over: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, one)
	c.mu.Unlock()
	for !closed(one.taken) {
		select {
		case <-one.taken:
		case <-ctx.Done():
			c.remove(one)
			return one.out, ctx.Err()
		case c.calling <- struct{}{}:
			c.serve(ctx)
			<-c.calling
		}
	}
	select {
	case <-one.over:
		return one.out, one.err
	case <-ctx.Done():
		var none Out
		return none, ctx.Err()
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// remove removes an item whose caller has gone. A call may have taken it already.
func (c *Calls[In, Out]) remove(one *item[In, Out]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := slices.Index(c.waiting, one); at >= 0 {
		c.waiting = slices.Delete(c.waiting, at, at+1)
	}
}

// serve makes a call with the items that wait, if there are any.
func (c *Calls[In, Out]) serve(ctx context.Context) {
	taken, items := c.take()
	if len(taken) == 0 {
		return
	}
	answers, err := c.call(ctx, items)
	for i, one := range taken {
		if one.err = err; err == nil {
			one.out = answers[i]
		}
		close(one.over)
	}
}

// take takes the items of the next call.
func (c *Calls[In, Out]) take() (taken []*item[In, Out], items []In) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.waiting[:0:0]
	for _, one := range c.waiting {
		if len(items) > 0 && !c.fits(items, one.in) {
			left = append(left, one)
			continue
		}
		taken, items = append(taken, one), append(items, one.in)
		close(one.taken)
	}
	c.waiting = left
	return taken, items
}
