package bridge

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// view is what the pumps know of the rows. Step writes it. The rows in it never change, so a
// pump that needs many of them works on them without the lock.
type view struct {
	mu   sync.RWMutex
	rows map[string]*plan.Row
	// resting are the bundles whose rows rest, with their queues.
	resting map[string]string
	// flying are the bundles in flight.
	flying map[string]struct{}
	// working are the bundles on which a worker may be at work, each with the number that it got when it
	// came in. quietSince is when the last one left.
	working    map[string]int
	entries    int
	quietSince time.Time
	// turns are the bundles in working in the order in which their records are read. A bundle
	// that has left working stays in it until its turn.
	turns []turn
	// requested is the sum of what each queue's bundles request.
	requested map[string]codalab.Resources
	// observed is set once Slurm was seen as a whole. unreachable is set while Slurm
	// does not answer.
	observed, unreachable atomic.Bool
	// answered is when the server last answered a check-in, in nanoseconds since 1970; 0 for never.
	// failing is set while it does not take them.
	answered atomic.Int64
	failing  atomic.Bool
	// nodes is the sum of each queue's nodes, and sizes are theirs; nil while they are not known. free is how much of
	// the shared disk may be used, in bytes; 0 before the first measurement.
	nodes map[string]codalab.Resources
	sizes map[string]sbatch.NodeSizes
	free  atomic.Int64
	// low is why nothing new may be put onto the shared disk; empty if it may.
	low string
}

// turn is a bundle's place in the order of reading, and when its records were last read. resumed is set
// if this life of the bridge has not read them: the one before may have answered a ring and died before
// it read the records.
type turn struct {
	bundle  string
	entry   int
	read    time.Time
	resumed bool
}

func (v *view) init() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rows, v.resting = map[string]*plan.Row{}, map[string]string{}
	v.flying, v.working, v.quietSince = map[string]struct{}{}, map[string]int{}, time.Time{}
	v.requested = map[string]codalab.Resources{}
	v.turns = nil
	v.observed.Store(false)
	v.unreachable.Store(false)
	v.low = ""
}

// publish shows a row that was decided now to the pumps; now is zero for one of an earlier life.
func (b *Bridge) publish(now time.Time, r *plan.Row) {
	b.active.cancelOutdated(r)
	b.view.put(now, r)
	b.reports.note(r)
}

// put shows a row that was decided now.
func (v *view) put(now time.Time, r *plan.Row) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.rows[r.Bundle]
	v.rows[r.Bundle] = r
	if r.InFlight() {
		v.flying[r.Bundle] = struct{}{}
	} else {
		delete(v.flying, r.Bundle)
	}
	switch _, worked := v.working[r.Bundle]; {
	case r.MayHaveWorker() && !worked:
		v.entries++
		v.working[r.Bundle] = v.entries
		v.turns = append(v.turns, turn{bundle: r.Bundle, entry: v.entries, resumed: now.IsZero()})
	case worked && !r.MayHaveWorker():
		delete(v.working, r.Bundle)
		v.quietSince = now
	}
	v.request(old, -1)
	v.request(r, 1)
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
	b.active.cancelOutdated(r)
	b.view.put(time.Time{}, r)
	b.reports.resume(r)
}

// showLow tells check-ins why no bundles are claimed; empty if some are.
func (v *view) showLow(low string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.low = low
}

// Changes returns two channels of a queue's identity. The first receives when a run has entered
// another state of CodaLab's, the second when something else is worth a check-in.
func (b *Bridge) Changes(q plan.Queue) (urgent, other <-chan struct{}) {
	s := b.reports.changes(q.Name)
	return s.urgent, s.other
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
		next := v.turns[0]
		if v.working[next.bundle] != next.entry {
			v.turns = v.turns[1:]
			continue
		}
		if len(rows) >= readAtOnce && !next.resumed || len(rows) == resumedAtOnce {
			break
		}
		if since := now.Sub(next.read); since >= 0 && since < pause { // below 0 the clock was set back
			break
		}
		v.turns = append(v.turns[1:], turn{bundle: next.bundle, entry: next.entry, read: now})
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

// listenOn is how long the bridge goes on reading the doorbell after the last job that was not pending:
// most pending jobs start soon, or when others have ended.
const listenOn = 30 * time.Second

// mayRing reports whether the doorbell is worth reading. While all jobs are pending no worker rings; the
// next snapshot of Slurm shows when a job has started.
func (v *view) mayRing(now time.Time) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	known := v.observed.Load() && !v.unreachable.Load()
	return len(v.flying) > 0 && (len(v.working) > 0 || !known || now.Before(v.quietSince.Add(listenOn)))
}

// remove takes a row out of the view.
func (v *view) remove(r *plan.Row) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop(r)
}

// drop is remove for a caller that holds v.mu.
func (v *view) drop(r *plan.Row) {
	v.request(v.rows[r.Bundle], -1)
	delete(v.rows, r.Bundle)
	delete(v.flying, r.Bundle)
	delete(v.working, r.Bundle)
}
