package bridge

import (
	"context"
	"fmt"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// The row of an ended bundle is kept for a day or more, and decided some ten times in that time. A
// row takes kilobytes of memory. So it rests: it is in the ledger only, and memory has the time at
// which it is due. Step reads it when it is due or has news, as Open reads the other rows. After a start
// of the bridge, all rows that rest are due once Slurm was seen, and each step reads some of them.

// restEnded lets the rows rest that a step has decided to be done. Until Slurm was seen since the
// start none rests, because effects wait that belong to rows in memory.
func (b *Bridge) restEnded(s *step) {
	if !b.observed {
		return
	}
	for _, r := range s.rows {
		b.restIfEnded(r)
	}
	if b.rested {
		return
	}
	b.rested = true
	b.rows.wakeAll(s.now)
	for _, e := range b.rows.byBundle { // decided before Slurm was seen
		if e.row != nil {
			b.restIfEnded(e.row)
		}
	}
}

func (b *Bridge) restIfEnded(r *plan.Row) {
	if r.Phase == plan.Done && !r.InFlight() && b.rows.get(r.Bundle) == r && b.reports.forgetQuiet(r) {
		b.view.rest(r)
		b.rows.rest(r.Bundle)
	}
}

// decideIfThere decides a bundle's row, if it has one. It reads the row if it rests.
func (b *Bridge) decideIfThere(ctx context.Context, s *step, bundle string, n plan.News) error {
	r := b.rows.get(bundle)
	if r == nil && b.rows.has(bundle) {
		read, err := b.Ledger.Row(ctx, bundle)
		if err != nil {
			return fmt.Errorf("decide bundle %s: %w", bundle, err)
		}
		r = &read
		n.Restarted = n.Restarted || b.rows.byBundle[bundle].restarted
		b.rows.put(r)
		b.view.wake(r)
		b.resume(r)
	}
	if r != nil {
		b.decide(ctx, s, *r, n)
	}
	return nil
}

// mostWoken is how many rows a step reads that are due and rest. After a restart all are due.
const mostWoken = 100

// knownRow returns a bundle's row for a pump, from the ledger if it rests.
func (b *Bridge) knownRow(ctx context.Context, bundle string) (plan.Row, bool) {
	if r, ok := b.view.row(bundle); ok {
		return r, true
	}
	if !b.view.rests(bundle) {
		return plan.Row{}, false
	}
	r, err := b.Ledger.Row(ctx, bundle)
	return r, err == nil // the row may have been forgotten meanwhile
}

// Resting returns how many rows of each queue rest; Rows returns the others. It is safe for
// concurrent use.
func (b *Bridge) Resting() map[string]int {
	b.view.mu.RLock()
	defer b.view.mu.RUnlock()
	counts := map[string]int{}
	for _, queue := range b.view.resting {
		counts[queue]++
	}
	return counts
}

// rest takes a row out of the view, and notes that it rests.
func (v *view) rest(r *plan.Row) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop(r)
	v.resting[r.Bundle] = r.Queue
}

// asleep notes a row that rests since before the start of the bridge.
func (v *view) asleep(bundle, queue string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.resting[bundle] = queue
}

// wake notes that a row rests no longer.
func (v *view) wake(r *plan.Row) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.resting, r.Bundle)
}

func (v *view) rests(bundle string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	_, ok := v.resting[bundle]
	return ok
}
