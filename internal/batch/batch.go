// Package batch lets goroutines share calls: those that wait for a call at the same time are served by the next one
// together. A caller that finds no call under way is served at once, alone.
//
// As in package sharedcall, each caller waits only until its own context ends, and a call is cancelled once none of its
// callers waits for it.
package batch

import (
	"context"
	"slices"
	"sync"

	"github.com/cl-slurm/cl-slurm/internal/background"
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

// item is an item of a caller. taken is closed when a call has it, and over when that call has ended.
type item[In, Out any] struct {
	in    In
	out   Out
	err   error
	taken chan struct{}
	over  chan struct{}
	// served is the call that has it; nil before.
	served *served
}

// served are the callers of a call under way.
type served struct {
	waiting int
	cancel  context.CancelFunc
}

// New returns Calls of which atOnce are under way at most. fits reports whether a call with these items, which are one or
// more, has room for another one; the items of a call keep the order in which they came. call makes a call. It returns an
// answer for each item, in their order, or an error, which each of their callers gets.
func New[In, Out any](atOnce int, fits func(items []In, more In) bool, call func(ctx context.Context, items []In) ([]Out, error)) *Calls[In, Out] {
	return &Calls[In, Out]{fits: fits, call: call, calling: make(chan struct{}, atOnce)}
}

// Do returns the answer for an item. If ctx ends first, Do returns ctx.Err() and leaves the call to the other callers. The
// call gets a context with the values of one caller's context, which is cancelled when the last caller leaves.
func (c *Calls[In, Out]) Do(ctx context.Context, in In) (Out, error) {
	one := &item[In, Out]{in: in, taken: make(chan struct{}), over: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, one)
	c.mu.Unlock()
	for !closed(one.taken) {
		select {
		case <-one.taken:
		case <-ctx.Done():
			return c.leave(ctx, one)
		case c.calling <- struct{}{}:
			c.begin(ctx)
		}
	}
	select {
	case <-one.over:
		return one.out, one.err
	case <-ctx.Done():
		return c.leave(ctx, one)
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

// leave takes a caller off whose context has ended, and its item if no call has it.
func (c *Calls[In, Out]) leave(ctx context.Context, one *item[In, Out]) (Out, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of := one.served; of == nil {
		c.waiting = slices.DeleteFunc(c.waiting, func(other *item[In, Out]) bool { return other == one })
	} else if of.waiting--; of.waiting == 0 {
		of.cancel()
	}
	var none Out
	return none, ctx.Err()
}

// begin begins a call with the items that wait, if there are any. The caller has put an element into calling for it.
func (c *Calls[In, Out]) begin(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	taken, items := c.take(cancel)
	if len(taken) == 0 {
		cancel()
		<-c.calling
		return
	}
	background.Detach(func() { // ends with the call
		defer cancel()
		answers, err := c.call(ctx, items)
		<-c.calling
		for i, one := range taken {
			if one.err = err; err == nil {
				one.out = answers[i]
			}
			close(one.over)
		}
	})
}

// take takes the items of the next call.
func (c *Calls[In, Out]) take(cancel context.CancelFunc) (taken []*item[In, Out], items []In) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := &served{cancel: cancel}
	left := c.waiting[:0:0]
	for _, one := range c.waiting {
		if len(items) > 0 && !c.fits(items, one.in) {
			left = append(left, one)
			continue
		}
		taken, items = append(taken, one), append(items, one.in)
		of.waiting++
		one.served = of
		close(one.taken)
	}
	c.waiting = left
	return taken, items
}
