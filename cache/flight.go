package cache

import "context"

// flight is one bringing that is under way in this process, and its callers.
type flight struct {
	cancel  context.CancelFunc
	callers int // guarded by Cache.mu

	done      chan struct{} // closed at its end, after which the rest is set
	path      string
	err       error
	abandoned bool // every caller left before the end
}

// join adds a caller to the flight for name, or begins one.
func (c *Cache) join(ctx context.Context, name string, bring func(context.Context) (string, error)) (f *flight, began bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f = c.flights[name]
	if f == nil {
		began = true
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{cancel: cancel, done: make(chan struct{})}
		c.flights[name] = f
		go c.fly(own, name, f, bring)
	}
	f.callers++
	return f, began
}

// fly brings, and tells the callers.
func (c *Cache) fly(ctx context.Context, name string, f *flight, bring func(context.Context) (string, error)) {
	defer f.cancel()
	f.path, f.err = bring(ctx)
	f.abandoned = ctx.Err() != nil
	c.mu.Lock()
	delete(c.flights, name)
	c.mu.Unlock()
	close(f.done)
}

// leave takes a caller off a flight; the last one ends it.
func (c *Cache) leave(name string, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.callers--; f.callers == 0 && c.flights[name] == f {
		f.cancel()
	}
}
