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
func (d *decider) restEnded(s *step) {
	if !d.jobs.observed {
		return
	}
	for _, r := range s.rows {
		d.restIfEnded(r)
	}
	if d.rested {
		return
	}
	d.rested = true
	d.rows.wakeAll(s.now)
	for _, e := range d.rows.byBundle { // decided before Slurm was seen
		if e.row != nil {
			d.restIfEnded(e.row)
		}
	}
}

// restIfEnded lets a row rest if its bundle has ended, and nothing is under way of it.
func (d *decider) restIfEnded(r *plan.Row) {
	if r.Phase == plan.Done && !r.InFlight() && d.rows.get(r.Bundle) == r && d.board.rest(r) {
		d.rows.rest(r.Bundle)
	}
}

// decideIfThere decides a bundle's row, if it has one. It reads the row if it rests.
func (d *decider) decideIfThere(ctx context.Context, s *step, bundle string, n *plan.News) error {
	r := d.rows.get(bundle)
	if r == nil && d.rows.has(bundle) {
		read, err := d.ledger.Row(ctx, bundle)
		if err != nil {
			return fmt.Errorf("decide bundle %s: %w", bundle, err)
		}
		r = &read
		n.Restarted = n.Restarted || d.rows.byBundle[bundle].restarted
		d.rows.put(r)
		d.board.view.wake(r)
		d.starter.active.cancelOutdated(r)
		d.board.resume(r)
	}
	if r != nil {
		d.decide(ctx, s, r, n)
	}
	return nil
}

// mostWoken bounds the resting rows that a step reads because they are due. After a restart all are due.
const mostWoken = 100

// decideDue decides the rows that are due and have not been decided in this step.
func (d *decider) decideDue(ctx context.Context, s *step) error {
	waking := mostWoken
	for _, bundle := range d.rows.dueBy(s.now) {
		if s.has(bundle) {
			continue
		}
		if d.rows.get(bundle) == nil {
			if waking--; waking < 0 { // the next step wakes it
				continue
			}
		}
		if err := d.decideIfThere(ctx, s, bundle, &plan.News{}); err != nil {
			return err
		}
	}
	return nil
}
