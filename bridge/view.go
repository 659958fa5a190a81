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

// view is what the pumps know of the rows. Step writes it. The rows that it
// hands out are not changed any more; whoever needs many of them works on them
// without keeping Step waiting.
type view struct {
	mu   sync.RWMutex
	rows map[string]*plan.Row
	// flying are the bundles in flight, each with the number of its take-off.
	flying   map[string]int
	takeOffs int
	// turns are the bundles in flight in the order in which their records are
	// to be read. One that is in flight no more stays until its turn comes.
	turns []turn
	// changed holds a token for a queue when a check-in would tell something
	// new.
	changed map[string]chan struct{}
	// observed is set once Slurm was seen as a whole.
	observed atomic.Bool
	// low is set while the shared disk is below its low water.
	low atomic.Bool
}

// turn is a bundle's place among those whose records are read, and when they
// last were.
type turn struct {
	bundle  string
	takeOff int
	read    time.Time
}

func (v *view) init() {
	v.rows, v.flying, v.changed = map[string]*plan.Row{}, map[string]int{}, map[string]chan struct{}{}
	v.turns = nil
	v.observed.Store(false)
	v.low.Store(false)
}

// publish shows a row to the pumps.
func (b *Bridge) publish(r *plan.Row) {
	b.running.outlived(r)
	v := &b.view
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.rows[r.Bundle]
	v.rows[r.Bundle] = r
	_, flew := v.flying[r.Bundle]
	switch {
	case r.InFlight() && !flew:
		v.takeOffs++
		v.flying[r.Bundle] = v.takeOffs
		v.turns = append(v.turns, turn{bundle: r.Bundle, takeOff: v.takeOffs})
	case flew && !r.InFlight():
		delete(v.flying, r.Bundle)
	}
	if worthTelling(old, r) {
		select {
		case v.changedIn(r.Queue) <- struct{}{}:
		default:
		}
	}
}

// showLow shows all queues' check-ins whether bundles are claimed.
func (v *view) showLow(low bool) {
	v.low.Store(low)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.changed {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// worthTelling says whether a check-in of its own is due for a row that has
// changed. Usage goes with the next one, however many rows there are.
func worthTelling(old, r *plan.Row) bool {
	switch {
	case old == nil:
		return r.Reported()
	case !r.Reported() && !old.Reported():
		return false
	}
	return !old.Same(*r) || old.Progress != r.Progress
}

// changedIn returns a queue's channel; v.mu is held.
func (v *view) changedIn(queue string) chan struct{} {
	c := v.changed[queue]
	if c == nil {
		c = make(chan struct{}, 1)
		v.changed[queue] = c
	}
	return c
}

func (v *view) news(queue string) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changedIn(queue)
}

// row returns a row as the pumps may see it.
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
	return v.sorted(func(r *plan.Row) bool { return r.InFlight() })
}

// sorted returns some of the rows in the order of their bundles.
func (v *view) sorted(some func(*plan.Row) bool) []*plan.Row {
	v.mu.RLock()
	rows := make([]*plan.Row, 0, len(v.rows))
	for _, r := range v.rows {
		if some(r) {
			rows = append(rows, r)
		}
	}
	v.mu.RUnlock()
	slices.SortFunc(rows, func(a, b *plan.Row) int { return strings.Compare(a.Bundle, b.Bundle) })
	return rows
}

// turn returns the rows whose records are to be read now, and puts them at the
// end of the line.
func (v *view) turn(now time.Time, pause time.Duration) []*plan.Row {
	v.mu.Lock()
	defer v.mu.Unlock()
	var rows []*plan.Row
	for range len(v.turns) { // each once
		if len(rows) == readAtOnce {
			break
		}
		next := v.turns[0]
		if v.flying[next.bundle] != next.takeOff {
			v.turns = v.turns[1:]
			continue
		}
		if since := now.Sub(next.read); since >= 0 && since < pause { // below 0 the clock was set back
			break
		}
		v.turns = append(v.turns[1:], turn{next.bundle, next.takeOff, now})
		rows = append(rows, v.rows[next.bundle])
	}
	return rows
}

// anyInFlight says whether a row is in flight.
func (v *view) anyInFlight() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.flying) > 0
}

// reports returns what a check-in of a queue's identity tells, in the order of
// the bundles.
func (v *view) reports(queue, identity string) []codalab.Run {
	rows := v.sorted(func(r *plan.Row) bool { return r.Queue == queue && r.Reported() })
	runs := make([]codalab.Run, len(rows))
	for i, r := range rows {
		runs[i] = r.Report(identity)
	}
	return runs
}

func (v *view) remove(r plan.Row) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.rows, r.Bundle)
	delete(v.flying, r.Bundle)
}
