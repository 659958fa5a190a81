package bridge

import (
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// board shows the watchers and the check-ins what the decider has decided. It is safe for concurrent use.
// Only the decider changes its rows.
type board struct {
	view     view
	reports  reports
	capacity capacity
	load     load
}

func (b *board) init() {
	b.view.init()
	b.reports.init()
	b.capacity.init()
	b.load.init()
}

// publish shows a row that was decided now.
func (b *board) publish(now time.Time, r *plan.Row) {
	old := b.view.put(now, r)
	b.capacity.replace(old, r)
	b.load.replace(old, r)
	b.reports.note(r)
}

// resume shows a row of an earlier life of the bridge.
func (b *board) resume(r *plan.Row) {
	old := b.view.put(time.Time{}, r)
	b.capacity.replace(old, r)
	b.load.replace(old, r)
	b.reports.resume(r)
}

// remove takes a row off.
func (b *board) remove(r *plan.Row) {
	old := b.view.remove(r)
	b.capacity.replace(old, nil)
	b.load.replace(old, nil)
	b.reports.forget(r)
}

// rest takes a row off that rests from now on, and reports whether it could: not while its report is under
// way.
func (b *board) rest(r *plan.Row) bool {
	if !b.reports.forgetQuiet(r) {
		return false
	}
	old := b.view.rest(r)
	b.capacity.replace(old, nil)
	b.load.replace(old, nil)
	return true
}

// showLow tells the server the reason for which no bundles are claimed; empty for none. If turned is set, the
// check-ins of all queues tell it at once.
func (b *board) showLow(low string, turned bool) {
	b.capacity.close(low)
	if turned {
		b.reports.hurry(false)
	}
}

// showDrained tells the server which queues take no new bundles, and why. The check-ins of all queues tell it at once.
func (b *board) showDrained(words map[string]string) {
	if b.capacity.drain(words) {
		b.reports.hurry(true)
	}
}
