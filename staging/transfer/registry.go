package transfer

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/cl-slurm/cl-slurm/cache"
)

// Registry has the transfers that are under way, by key, and gives them their turns, a
// number of them at a time. The next turn goes to the transfer of the bundle that has the
// fewest, so that a bundle with a hundred dependencies does not hold the others up; among
// equals, to the one that has waited longest.
//
// The zero Registry is ready for use and has no turns. Its methods are safe for concurrent
// use.
type Registry struct {
	mu           sync.Mutex // guards also the bundles and turns of the transfers
	transfers    map[string]*Transfer
	turns, taken int // how many there are, and are taken
	queue        []*waiter
}

type waiter struct {
	transfer *Transfer
	granted  chan struct{}
}

// NewRegistry returns a Registry with so many turns at a time.
func NewRegistry(turns int) *Registry { return &Registry{turns: turns} }

// Join makes a bundle wait for the transfer of a key, and registers that if nobody waits
// for it yet. The caller calls leave once, when the bundle waits no more.
func (r *Registry) Join(key, bundle string) (t *Transfer, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t = r.transfers[key]
	if t == nil {
		t = &Transfer{registry: r, bundles: map[string]int{}}
		if r.transfers == nil {
			r.transfers = map[string]*Transfer{}
		}
		r.transfers[key] = t
	}
	t.bundles[bundle]++
	return t, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if t.bundles[bundle]--; t.bundles[bundle] == 0 {
			delete(t.bundles, bundle)
		}
		if len(t.bundles) == 0 {
			delete(r.transfers, key)
		}
	}
}

// Fill makes a cache entry's content at tmp, and tells t how far it is.
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

// InTurn calls do when it is the transfer's turn. A transfer may have several turns at once.
func (t *Transfer) InTurn(ctx context.Context, do func() error) error {
	r := t.registry
	if err := r.acquire(ctx, t); err != nil {
		return err
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.release(t)
	}()
	return do()
}

func (r *Registry) acquire(ctx context.Context, t *Transfer) error {
	w := &waiter{transfer: t, granted: make(chan struct{})}
	r.mu.Lock()
	r.queue = append(r.queue, w)
	t.queued++
	r.grant()
	r.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.queue, w); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
		t.queued--
	} else { // it was granted in the same moment
		r.release(t)
	}
	return fmt.Errorf("wait for a turn: %w", ctx.Err())
}

// release and those below are called with r.mu held.
func (r *Registry) release(t *Transfer) {
	t.turns--
	r.taken--
	r.grant()
}

func (r *Registry) grant() {
	for r.taken < r.turns && len(r.queue) > 0 {
		i := r.next()
		w := r.queue[i]
		r.queue = slices.Delete(r.queue, i, i+1)
		w.transfer.queued--
		w.transfer.turns++
		r.taken++
		close(w.granted)
	}
}

// next is the index of the waiter that gets the next turn.
func (r *Registry) next() int {
	turns := map[string]int{} // by bundle
	for _, t := range r.transfers {
		for bundle := range t.bundles {
			turns[bundle] += t.turns
		}
	}
	best, fewest := 0, -1
	for i, w := range r.queue {
		for bundle := range w.transfer.bundles {
			if n := turns[bundle]; fewest < 0 || n < fewest {
				best, fewest = i, n
			}
		}
		if fewest == 0 {
			break
		}
	}
	return best
}
