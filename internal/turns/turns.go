// Package turns shares a number of places among the people who want them.
//
// A bridge does a few long things at a time for everybody: uploads, downloads, conversions of
// images. If a free place went to whoever has waited longest, one owner's thousand bundles would keep
// all others waiting. So these are the rules:
//
//   - A free place goes to the owner who has the fewest places. Among several it goes to the one who
//     has waited longest since getting the last one.
//   - Within an owner it goes by the same rule to a bundle, so that a bundle with a hundred downloads
//     does not keep the owner's others waiting. Within a bundle it goes to whatever asked first.
//   - An owner gets another place only while more are free than the owner has. So one owner has half of
//     the places at most, rounded up, and the next owner finds some free, however long the first keeps
//     them.
//
// So while an owner waits, each other one who has as many places or more gets one more at most.
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
	clock         int64 // counts what happens; it orders those who wait
	owners        map[string]*owner
}

// New returns so many free places.
func New(places int) *Turns { return &Turns{places: places, owners: map[string]*owner{}} }

// Party is who wants a place. Bundle may be empty: then everything of the owner goes in the order
// of asking.
type Party struct{ Owner, Bundle string }

// owner is one who has places, or waits for some.
type owner struct {
	claim

	bundles map[string]*bundle
}

// bundle is one of an owner's bundles that has places, or waits for some.
type bundle struct {
	claim

	queue []*Ticket
}

// claim is what decides whose turn it is.
type claim struct {
	waiting, held int
	// since is when it got its last place, or, if that was later, when it began to wait.
	since int64
}

func (c *claim) before(other *claim) bool {
	return c.held < other.held || c.held == other.held && c.since < other.since
}

// Ticket is a wish for a place, and then the place. Its methods may be called at any time.
type Ticket struct {
	turns   *Turns
	granted func()
	// parties wait with it; nil once it has its place, or has left. holder is whose turn it
	// used; nil while it has no place.
	parties []Party
	holder  *Party
}

// Ask queues for a place, and calls granted once when it is there, which may be before Ask returns.
// granted must not block. The caller calls Leave in the end.
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

// Taken is how many places are taken.
func (t *Turns) Taken() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken
}

// Join makes another party wait with those that wait already: the first turn of any of them
// counts. It does nothing once the place is there.
func (k *Ticket) Join(p Party) {
	k.turns.mu.Lock()
	if len(k.parties) > 0 && !slices.Contains(k.parties, p) {
		k.turns.enqueue(k, p)
	}
	k.turns.grantAndUnlock()
}

// Quit takes back a Join. The last party that waits stays: only Leave ends the wish.
func (k *Ticket) Quit(p Party) {
	k.turns.mu.Lock()
	defer k.turns.mu.Unlock()
	if len(k.parties) > 1 && slices.Contains(k.parties, p) {
		k.turns.dequeue(k, p)
	}
}

// Granted reports whether the place is there.
func (k *Ticket) Granted() bool {
	k.turns.mu.Lock()
	defer k.turns.mu.Unlock()
	return k.holder != nil
}

// Leave gives the place back, or waits no more. It may be called more than once.
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
		t.tidy(*p)
	}
	t.grantAndUnlock()
}

// of returns a party's owner and bundle. It and those below are called with t.mu held.
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

// tidy forgets a party that neither has nor wants a place.
func (t *Turns) tidy(p Party) {
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
	t.tidy(p)
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
