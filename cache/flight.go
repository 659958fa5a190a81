package cache

import "context"

// flight is one fill that is under way, and its callers.
type flight struct {
	cancel  context.CancelFunc
	callers int // guarded by Cache.mu

	done      chan struct{} // closed at its end, after which the rest is set
	err       error
	abandoned bool // every caller left before the end
}

// join adds a caller to the flight for path, or begins one.
func (c *Cache) join(ctx context.Context, path string, fill func(context.Context) error) *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.flights[path]
	if f == nil {
		fillCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{cancel: cancel, done: make(chan struct{})}
		c.flights[path] = f
		go c.fly(fillCtx, path, f, fill)
	}
	f.callers++
	return f
}

// fly fills, and tells the callers.
func (c *Cache) fly(ctx context.Context, path string, f *flight, fill func(context.Context) error) {
	defer f.cancel()
	f.err = fill(ctx)
	f.abandoned = ctx.Err() != nil
	c.mu.Lock()
	delete(c.flights, path)
	c.mu.Unlock()
	close(f.done)
}

// leave takes a caller off a flight; the last one ends it.
func (c *Cache) leave(path string, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.callers--; f.callers == 0 && c.flights[path] == f {
		f.cancel()
	}
}
