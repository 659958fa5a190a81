package bridge

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// view is what the pumps know of the rows. Step writes it. The rows in it never change, so a
// pump that needs many of them works on them without the lock.
type view struct {
	mu   sync.RWMutex
	rows map[string]*plan.Row
	// resting are the bundles whose rows rest, with their queues.
	resting map[string]string
	// flying are the bundles in flight, each with the number of its entry into flight.
	flying  map[string]int
	entries int
	// turns are the bundles in flight in the order in which their records are read. A bundle
	// that has left flight stays in it until its turn.
	turns []turn
	// reports are what each queue's check-ins have reported.
	reports map[string]*reports
	// requested is the sum of what each queue's bundles request.
	requested map[string]codalab.Resources
	// acknowledged counts, for each bundle, the acknowledgements that no step has applied yet.
	acknowledged map[string]int
	// observed is set once Slurm was seen as a whole. unreachable is set while Slurm
	// does not answer.
	observed, unreachable atomic.Bool
	// nodes is the sum of each queue's nodes; nil while it is not known. free is how much of
	// the shared disk may be used, in bytes; 0 before the first measurement.
	nodes map[string]codalab.Resources
	free  atomic.Int64
	// low is set while the shared disk is below its low water.
	low atomic.Bool
}

// turn is a bundle's place in the order of reading, and when its records were last read.
type turn struct {
	bundle string
	entry  int
	read   time.Time
}

func (v *view) init() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rows, v.resting, v.flying = map[string]*plan.Row{}, map[string]string{}, map[string]int{}
	v.reports, v.acknowledged = map[string]*reports{}, map[string]int{}
	v.requested = map[string]codalab.Resources{}
	v.turns = nil
	v.observed.Store(false)
	v.unreachable.Store(false)
	v.low.Store(false)
}

// publish shows a row to the pumps.
func (b *Bridge) publish(r *plan.Row) {
	b.active.cancelOutdated(r)
	v := &b.view
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.rows[r.Bundle]
	v.rows[r.Bundle] = r
	_, flew := v.flying[r.Bundle]
	switch {
	case r.InFlight() && !flew:
		v.entries++
		v.flying[r.Bundle] = v.entries
		v.turns = append(v.turns, turn{bundle: r.Bundle, entry: v.entries})
	case flew && !r.InFlight():
		delete(v.flying, r.Bundle)
	}
	v.request(old, -1)
	v.request(r, 1)
	v.reportsOf(r.Queue).note(old, r)
}

// request adds what a row's bundle requests to the sum of its queue, or takes it away.
func (v *view) request(r *plan.Row, sign int64) {
	if r == nil || r.Phase == plan.Done {
		return
	}
	sum := v.requested[r.Queue]
	sum.CPUs += sign * r.Resources.CPUs
	sum.GPUs += sign * r.Resources.GPUs
	sum.Memory += sign * r.Resources.Memory
	v.requested[r.Queue] = sum
}

// resume shows a row of an earlier life of the bridge to the pumps.
func (b *Bridge) resume(r *plan.Row) {
	b.view.mu.Lock()
	b.view.reportsOf(r.Queue).resume(r)
	b.view.mu.Unlock()
	b.publish(r)
}

// showLow tells the check-ins of all queues whether bundles are claimed.
func (v *view) showLow(low bool) {
	v.low.Store(low)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.reports {
		signal(r.urgent)
	}
}

// reportsOf returns a queue's reports. The caller holds v.mu.
func (v *view) reportsOf(queue string) *reports {
	r := v.reports[queue]
	if r == nil {
		r = newReports()
		v.reports[queue] = r
	}
	return r
}

// Changes returns two channels of a queue's identity. The first receives when a run has entered
// another state of CodaLab's, the second when something else is worth a check-in.
func (b *Bridge) Changes(q plan.Queue) (urgent, other <-chan struct{}) {
	b.view.mu.Lock()
	defer b.view.mu.Unlock()
	r := b.view.reportsOf(q.Name)
	return r.urgent, r.other
}

// row returns a bundle's row.
func (v *view) row(bundle string) (plan.Row, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if r := v.rows[bundle]; r != nil {
		return *r, true
	}
	return plan.Row{}, false
}

// inFlight returns the rows in flight, in the order of their bundles.
func (v *view) inFlight() []*plan.Row {
	v.mu.RLock()
	rows := make([]*plan.Row, 0, len(v.flying))
	for bundle := range v.flying {
		rows = append(rows, v.rows[bundle])
	}
	v.mu.RUnlock()
	slices.SortFunc(rows, func(a, b *plan.Row) int { return strings.Compare(a.Bundle, b.Bundle) })
	return rows
}

// nextTurns returns the rows whose records are to be read now, and moves them to the end of the
// order.
func (v *view) nextTurns(now time.Time, pause time.Duration) []*plan.Row {
	v.mu.Lock()
	defer v.mu.Unlock()
	var rows []*plan.Row
	for range len(v.turns) { // each once
		if len(rows) == readAtOnce {
			break
		}
		next := v.turns[0]
		if v.flying[next.bundle] != next.entry {
			v.turns = v.turns[1:]
			continue
		}
		if since := now.Sub(next.read); since >= 0 && since < pause { // below 0 the clock was set back
			break
		}
		v.turns = append(v.turns[1:], turn{next.bundle, next.entry, now})
		rows = append(rows, v.rows[next.bundle])
	}
	return rows
}

// anyInFlight reports whether a row is in flight.
func (v *view) anyInFlight() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.flying) > 0
}

func (v *view) remove(r plan.Row) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.request(v.rows[r.Bundle], -1)
	delete(v.rows, r.Bundle)
	delete(v.flying, r.Bundle)
	v.reportsOf(r.Queue).forget(r.Bundle)
}
