package transfer

import (
	"context"
	"sync"

	"github.com/cl-slurm/cl-slurm/cache"
)

// Registry has the transfers that are under way, by key. The zero Registry is ready for
// use; its methods are safe for concurrent use.
type Registry struct {
	mu        sync.Mutex
	transfers map[string]*Transfer
}

// Join makes a bundle wait for the transfer of a key, and registers that if nobody waits
// for it yet. The caller calls leave once, when the bundle waits no more.
func (r *Registry) Join(key, bundle string) (t *Transfer, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t = r.transfers[key]
	if t == nil {
		t = &Transfer{}
		if r.transfers == nil {
			r.transfers = map[string]*Transfer{}
		}
		r.transfers[key] = t
	}
	t.addBundle(bundle, +1)
	return t, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		t.addBundle(bundle, -1)
		if len(t.waiting()) == 0 {
			delete(r.transfers, key)
		}
	}
}

// Fill makes a cache entry's content at tmp, and says to t how far it is.
type Fill func(ctx context.Context, t *Transfer, tmp string) error

// Get returns the path of a content of the cache, and has fill make it if nobody has yet.
// item shows the transfer meanwhile. All bundles that wait for a content share it.
func (r *Registry) Get(ctx context.Context, c *cache.Cache, w cache.Want, bundle string, item *Item, fill Fill) (string, error) {
	t, leave := r.Join(w.Key.Kind+" "+w.Key.ID, bundle)
	defer leave()
	item.Follow(t)
	w.Waiting = func(by string) { t.setStage(Elsewhere, by) }
	content, err := c.Get(ctx, w, func(ctx context.Context, tmp string) error {
		t.SetStage(Idle)
		return fill(ctx, t, tmp)
	})
	if err == nil {
		item.Arrived()
	}
	return content, err
}
