package transfer

import (
	"context"
	"fmt"
	"sync"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/turns"
)

// Registry has the current transfers, by key, and gives them their turns, a number of them at a
// time (package turns). A transfer has the turns of all bundles that wait for it.
//
// The zero Registry is ready for use and has no turns. Its methods are safe for concurrent use.
type Registry struct {
	mu        sync.Mutex // also guards the bundles and tickets of the transfers
	transfers map[string]*Transfer
	turns     *turns.Turns
}

// NewRegistry returns a Registry with so many turns at a time.
func NewRegistry(n int) *Registry { return &Registry{turns: turns.New(n)} }

// SetTurns sets the number of turns at a time. Transfers that have a turn keep it.
func (r *Registry) SetTurns(n int) { r.turns.SetPlaces(n) }

// Turns returns the number of turns at a time.
func (r *Registry) Turns() int { return r.turns.Places() }

// Join makes a bundle wait for the transfer of a key, and registers the transfer if it is the
// first. The caller calls leave once, when the bundle does not wait any more.
func (r *Registry) Join(key string, bundle turns.Party) (t *Transfer, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t = r.transfers[key]
	if t == nil {
		t = &Transfer{registry: r, bundles: map[turns.Party]int{}, tickets: map[*turns.Ticket]bool{}}
		if r.transfers == nil {
			r.transfers = map[string]*Transfer{}
		}
		r.transfers[key] = t
	}
	if t.bundles[bundle]++; t.bundles[bundle] == 1 {
		for k := range t.tickets {
			k.Join(bundle)
		}
	}
	return t, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if t.bundles[bundle]--; t.bundles[bundle] == 0 {
			delete(t.bundles, bundle)
			for k := range t.tickets {
				k.Quit(bundle)
			}
		}
		if len(t.bundles) == 0 {
			delete(r.transfers, key)
		}
	}
}

// Fill makes a cache entry's content at tmp, and reports its progress to t.
type Fill func(ctx context.Context, t *Transfer, tmp string) error

// Get returns the path of a content of the cache, and calls fill if the cache does not have it.
// item shows the transfer. All bundles that wait for a content share it.
func (r *Registry) Get(ctx context.Context, c *cache.Cache, w cache.Want, bundle string, item *Item, fill Fill) (string, error) {
	t, leave := r.Join(w.Key.Kind+" "+w.Key.ID, turns.Party{Owner: w.Owner, Bundle: bundle})
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

// InTurn calls do when it is the transfer's turn. A transfer may have several turns at the same
// time.
func (t *Transfer) InTurn(ctx context.Context, do func() error) error {
	granted := make(chan struct{})
	k := t.requestTurn(func() { close(granted) })
	defer t.leave(k)
	select {
	case <-granted:
		return do()
	case <-ctx.Done():
		return fmt.Errorf("wait for a turn: %w", ctx.Err())
	}
}

// requestTurn asks for a turn for each bundle that waits for the transfer.
func (t *Transfer) requestTurn(granted func()) *turns.Ticket {
	r := t.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	var k *turns.Ticket
	for bundle := range t.bundles {
		if k == nil {
			k = r.turns.Ask(bundle, granted)
		} else {
			k.Join(bundle)
		}
	}
	if k == nil { // the last bundle has just left
		k = r.turns.Ask(turns.Party{}, granted)
	}
	t.tickets[k] = true
	return k
}

func (t *Transfer) leave(k *turns.Ticket) {
	r := t.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(t.tickets, k)
	k.Leave()
}
