// Package sharedcall lets goroutines share one call if they request the same result at the
// same time.
//
// It is golang.org/x/sync/singleflight with contexts: each caller waits only until its own
// context ends, and the call itself is cancelled once no caller waits for it.
package sharedcall

import (
	"context"
	"sync"

	"golang.org/x/sync/singleflight"
)

// Group shares calls that return a V. The zero Group is ready for use. Its methods are safe
// for concurrent use.
type Group[V any] struct {
	flights singleflight.Group

	mu    sync.Mutex
	calls map[string]*call
}

// call is one call under way.
type call struct {
	ctx     context.Context //nolint:containedctx // the call's own, which outlives each caller's
	cancel  context.CancelFunc
	waiting int
}

// Do returns the result of fn. If a call for key is under way, Do waits for that one and
// does not call fn. If ctx ends first, Do returns ctx.Err() and leaves the call to the other
// callers.
//
// fn gets a context with the values of the first caller's context. Do cancels it when the
// last caller leaves. A later caller starts a new call, even if the cancelled one has not
// returned.
func (g *Group[V]) Do(ctx context.Context, key string, fn func(context.Context) (V, error)) (V, error) {
	c, result := g.enter(ctx, key, fn)
	defer g.leave(key, c)
	select {
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	case r := <-result:
		v, _ := r.Val.(V) // nil if fn returned a nil interface
		return v, r.Err
	}
}

// enter adds a caller to the call for key, and begins the call if there is none.
func (g *Group[V]) enter(ctx context.Context, key string, fn func(context.Context) (V, error)) (*call, <-chan singleflight.Result) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.calls[key]
	if c == nil {
		c = &call{}
		c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
		if g.calls == nil {
			g.calls = map[string]*call{}
		}
		g.calls[key] = c
	}
	c.waiting++
	return c, g.flights.DoChan(key, func() (any, error) {
		defer g.end(key, c)
		return fn(c.ctx)
	})
}

// leave takes a caller off a call. The last one cancels it.
func (g *Group[V]) leave(key string, c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.waiting--; c.waiting == 0 {
		c.cancel()
		g.forget(key, c)
	}
}

// end lets the next caller begin a new call.
func (g *Group[V]) end(key string, c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(key, c)
}

// forget drops the call for key if it is c. The caller holds g.mu.
func (g *Group[V]) forget(key string, c *call) {
	if g.calls[key] == c {
		delete(g.calls, key)
		g.flights.Forget(key)
	}
}
