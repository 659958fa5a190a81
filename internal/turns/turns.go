// Package turns shares a number of places among the owners that request them.
//
// A bridge does a few long operations at a time: uploads, downloads, conversions of images. If a free
// place went to the oldest request, one owner's thousand bundles would block all other owners. So these
// are the rules:
//
//   - A free place goes to the owner with the fewest places. Among several it goes to the one that
//     has waited longest since its last place.
//   - The same rule chooses among an owner's bundles, so that a bundle with a hundred downloads
//     does not block the owner's others. Within a bundle the oldest request comes first.
//   - An owner gets another place only while the free places outnumber the owner's places. So one
//     owner has at most half of the places, rounded up, and the next owner finds free ones,
//     however long the first keeps its places.
//
// So while an owner waits, every other owner with as many places or more gets at most one more.
package turns

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Turns are a number of places. Its methods are safe for concurrent use.
type Turns struct {
	mu            sync.Mutex
	places, taken int
	clock         int64 // counts events; it orders the waiting parties
	owners        map[string]*owner
}

// New returns Turns with this number of free places.
func New(places int) *Turns { return &Turns{places: places, owners: map[string]*owner{}} }

// Party is the owner and the bundle of a request. With an empty Bundle, the owner's requests are served
// in their order.
type Party struct{ Owner, Bundle string }

// owner is an owner that has places or waits for some.
type owner struct {
	claim

	bundles map[string]*bundle
}

// bundle is one of an owner's bundles that has places, or waits for some.
type bundle struct {
	claim

	queue []*Ticket
}

// claim has the values that decide the order of owners and bundles.
type claim struct {
	waiting, held int
	// since is the time of its last place, or of the beginning of its wait if that is later.
	since int64
}

func (c *claim) before(other *claim) bool {
	return c.held < other.held || c.held == other.held && c.since < other.since
}

// Ticket is a request for a place, and the place once it is granted. Its methods may be called at any time.
type Ticket struct {
	turns   *Turns
	granted func()
	// parties wait for the ticket's place; nil once it has its place, or was given up. holder is the
	// party whose turn was used; nil while the ticket has no place.
	parties []Party
	holder  *Party
}

// Ask queues for a place, and calls granted once when the ticket has it, which may be before Ask returns.
// granted must not block. The caller must call Leave in the end.
func (t *Turns) Ask(p Party, granted func()) *Ticket {
	k := &Ticket{turns: t, granted: granted}
	t.mu.Lock()
	t.enqueue(k, p)
	t.grantAndUnlock()
	return k
}

// Take waits for a place, and returns the function that gives it back. It fails if ctx ends before.
func (t *Turns) Take(ctx context.Context, p Party) (leave func(), err error) {
	granted := make(chan struct{})
	k := t.Ask(p, func() { close(granted) })
	select {
	case <-granted:
		return k.Leave, nil
	case <-ctx.Done():
		k.Leave()
		return nil, fmt.Errorf("wait for a turn: %w", ctx.Err())
	}
}

// SetPlaces sets the number of places. If more are taken, their holders keep them.
func (t *Turns) SetPlaces(n int) {
	t.mu.Lock()
	t.places = n
	t.grantAndUnlock()
}

// Places returns the number of places.
func (t *Turns) Places() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.places
}

// Taken returns the number of taken places.
func (t *Turns) Taken() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken
}

// Join adds a party to those that wait for the place: the first turn of any of them counts. It does
// nothing once the ticket has its place.
func (k *Ticket) Join(p Party) {
	k.turns.mu.Lock()
	if len(k.parties) > 0 && !slices.Contains(k.parties, p) {
		k.turns.enqueue(k, p)
	}
	k.turns.grantAndUnlock()
}

// Quit undoes a Join. It does not remove the last waiting party: only Leave ends the request.
func (k *Ticket) Quit(p Party) {
	k.turns.mu.Lock()
	defer k.turns.mu.Unlock()
	if len(k.parties) > 1 && slices.Contains(k.parties, p) {
		k.turns.dequeue(k, p)
	}
}

// Granted reports whether the ticket has its place.
func (k *Ticket) Granted() bool {
	k.turns.mu.Lock()
	defer k.turns.mu.Unlock()
	return k.holder != nil
}

// Leave gives the place back, or ends the wait. It may be called more than once.
func (k *Ticket) Leave() {
	t := k.turns
	t.mu.Lock()
	for len(k.parties) > 0 {
		t.dequeue(k, k.parties[0])
	}
	if p := k.holder; p != nil {
		k.holder = nil
		t.taken--
		o, b := t.of(*p)
		o.held--
		b.held--
		t.dropIdle(*p)
	}
	t.grantAndUnlock()
}

// of returns a party's owner and bundle. The caller of it and of the functions below holds t.mu.
func (t *Turns) of(p Party) (*owner, *bundle) {
	o := t.owners[p.Owner]
	if o == nil {
		o = &owner{bundles: map[string]*bundle{}}
		t.owners[p.Owner] = o
	}
	b := o.bundles[p.Bundle]
	if b == nil {
		b = &bundle{}
		o.bundles[p.Bundle] = b
	}
	return o, b
}

// dropIdle forgets a party that has no place and waits for none.
func (t *Turns) dropIdle(p Party) {
	o, b := t.of(p)
	if b.waiting+b.held == 0 {
		delete(o.bundles, p.Bundle)
	}
	if o.waiting+o.held == 0 {
		delete(t.owners, p.Owner)
	}
}

func (t *Turns) enqueue(k *Ticket, p Party) {
	o, b := t.of(p)
	t.clock++
	for _, c := range []*claim{&o.claim, &b.claim} {
		if c.waiting == 0 {
			c.since = t.clock
		}
		c.waiting++
	}
	b.queue = append(b.queue, k)
	k.parties = append(k.parties, p)
}

func (t *Turns) dequeue(k *Ticket, p Party) {
	o, b := t.of(p)
	o.waiting--
	b.waiting--
	i := slices.Index(b.queue, k)
	if i == 0 { // the usual case, which moves nothing
		b.queue[0], b.queue = nil, b.queue[1:]
	} else {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
	k.parties = slices.DeleteFunc(k.parties, func(other Party) bool { return other == p })
	t.dropIdle(p)
}

// grantAndUnlock gives out the free places, and unlocks.
func (t *Turns) grantAndUnlock() {
	var granted []func()
	for p, ok := t.next(); ok; p, ok = t.next() {
		o, b := t.of(p)
		k := b.queue[0]
		o.held++
		b.held++
		for len(k.parties) > 0 {
			t.dequeue(k, k.parties[0])
		}
		k.holder = &p
		t.taken++
		t.clock++
		o.since, b.since = t.clock, t.clock
		granted = append(granted, k.granted)
	}
	t.mu.Unlock()
	for _, call := range granted {
		call()
	}
}

// next is the party that gets the next place; ok is false if nobody may have one.
func (t *Turns) next() (p Party, ok bool) {
	free := t.places - t.taken
	var first *owner
	for name, o := range t.owners {
		if o.waiting > 0 && o.held < free && (first == nil || o.before(&first.claim)) {
			p.Owner, first = name, o
		}
	}
	if first == nil {
		return p, false
	}
	var one *bundle
	for name, b := range first.bundles {
		if b.waiting > 0 && (one == nil || b.before(&one.claim)) {
			p.Bundle, one = name, b
		}
	}
	return p, true
}
