package bridge

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// view has the decided rows for the watchers. It is safe for concurrent use. The rows in it never change, so
// a watcher that needs many of them works on them without the lock.
type view struct {
	mu   sync.RWMutex
	rows map[string]*plan.Row
	// resting are the bundles whose rows rest, with their queues.
	resting map[string]string
	// flying are the bundles in flight.
	flying map[string]struct{}
	// reading is the order in which the records of bundles are read on which a worker may be at work.
	reading readingOrder
}

func (v *view) init() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rows, v.resting = map[string]*plan.Row{}, map[string]string{}
	v.flying, v.reading = map[string]struct{}{}, readingOrder{working: map[string]entered{}}
}

// open reports whether the view has rows to show.
func (v *view) open() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.rows != nil
}

// put shows a row that was decided now, and returns the one in whose place it is; nil for none. now is zero
// for a row of an earlier life of the bridge.
func (v *view) put(now time.Time, r *plan.Row) (old *plan.Row) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old = v.rows[r.Bundle]
	v.rows[r.Bundle] = r
	if r.InFlight() {
		v.flying[r.Bundle] = struct{}{}
	} else {
		delete(v.flying, r.Bundle)
	}
	if r.MayHaveWorker() {
		v.reading.enter(r.Bundle, r.Begun != nil, now.IsZero())
	} else {
		v.reading.leave(r.Bundle, now)
	}
	return old
}

// remove takes a row out of the view, and returns it; nil if it was not there.
func (v *view) remove(r *plan.Row) *plan.Row {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.drop(r.Bundle)
}

// drop is remove for a caller that holds v.mu.
func (v *view) drop(bundle string) *plan.Row {
	old := v.rows[bundle]
	delete(v.rows, bundle)
	delete(v.flying, bundle)
	delete(v.reading.working, bundle)
	return old
}

// rest takes a row out of the view, notes that it rests, and returns it.
func (v *view) rest(r *plan.Row) *plan.Row {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.resting[r.Bundle] = r.Queue
	return v.drop(r.Bundle)
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

// rests reports whether a bundle's row rests.
func (v *view) rests(bundle string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	_, ok := v.resting[bundle]
	return ok
}

// countResting counts the resting rows of each queue.
func (v *view) countResting() map[string]int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	counts := map[string]int{}
	for _, queue := range v.resting {
		counts[queue]++
	}
	return counts
}

// all returns the rows, in no order; nil before init.
func (v *view) all() []*plan.Row {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.rows == nil {
		return nil
	}
	return slices.AppendSeq(make([]*plan.Row, 0, len(v.rows)), maps.Values(v.rows))
}

// live returns the bundles that have not ended, or whose end the server has not got.
func (v *view) live() []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var bundles []string
	for bundle, r := range v.rows {
		if r.Phase != plan.Done {
			bundles = append(bundles, bundle)
		}
	}
	return bundles
}

// working returns the number of rows that have, or may have, a job or results to collect.
func (v *view) working() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	n := 0
	for _, r := range v.rows {
		if r.Phase != plan.Finalizing && r.Phase != plan.Done {
			n++
		}
	}
	return n
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

// countJobs counts the rows in flight by their kinds of jobs.
func (v *view) countJobs(kind func(*plan.Row) plan.JobKind) plan.JobCounts {
	v.mu.RLock()
	defer v.mu.RUnlock()
	counts := plan.JobCounts{}
	packs := map[int64]bool{}
	for bundle := range v.flying {
		r := v.rows[bundle]
		if r.Pack && packs[r.Generation] {
			continue
		}
		packs[r.Generation] = packs[r.Generation] || r.Pack
		counts[kind(r)]++
	}
	return counts
}

// anyAtLimit reports whether a row waits because a limit is reached.
func (v *view) anyAtLimit() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, r := range v.rows {
		if r.AtLimit != "" || r.WaitsForLimit() {
			return true
		}
	}
	return false
}

// anyInFlight reports whether a row is in flight.
func (v *view) anyInFlight() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.flying) > 0
}

// nextToRead returns the rows whose records are to be read now, and moves them to the end of the
// order. A row's records are read again after the pause.
func (v *view) nextToRead(now time.Time, pause time.Duration) []*plan.Row {
	v.mu.Lock()
	defer v.mu.Unlock()
	var rows []*plan.Row
	for _, bundle := range append(v.reading.nextAgain(now), v.reading.next(now, pause)...) {
		rows = append(rows, v.rows[bundle])
	}
	return rows
}

// readAgain makes a row be read again soon.
func (v *view) readAgain(bundle string, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reading.readAgain(bundle, now)
}

// listenOn is the time for which the bridge goes on reading the doorbell after the last job that was not
// pending: most pending jobs start soon, or when others have ended.
const listenOn = 30 * time.Second

// mayRing reports whether the doorbell is worth reading. known says whether the last snapshot of Slurm is
// good. While it shows all jobs pending no worker rings; the next one shows when a job has started.
func (v *view) mayRing(now time.Time, known bool) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.flying) > 0 && (len(v.reading.working) > 0 || !known || now.Before(v.reading.quietSince.Add(listenOn)))
}

// readingOrder is the order in which the bridge reads the records of the bundles on which a worker may be at
// work. It is not safe for concurrent use.
type readingOrder struct {
	// working has these bundles, each with the number of its entry. quietSince is the time at which the last
	// one left.
	working    map[string]entered
	entries    int
	quietSince time.Time
	// begun are the bundles in working whose attempts have begun, and turns the others, each in the order of reading: a thousand members
	// that wait in their pack must not delay what the records of those that run show. A bundle that has left working, or has begun
	// since, stays in its place until its turn.
	begun, turns []turn
	// again has those of a reading that has failed, and for which the reports of the bundle wait.
	again []turn
}

// turn is a bundle's place in the order of reading, with the time at which its records were last read. resumed
// is set if this life of the bridge has not read them: the one before may have answered a ring and died before
// it read the records.
type turn struct {
	bundle  string
	entry   int
	read    time.Time
	resumed bool
}

// entered is the number of a bundle's entry, and whether its attempt had begun then.
type entered struct {
	entry int
	begun bool
}

// enter adds a bundle unless it is there.
func (o *readingOrder) enter(bundle string, begun, resumed bool) {
	if is, working := o.working[bundle]; working && is.begun == begun {
		return
	}
	o.entries++
	o.working[bundle] = entered{o.entries, begun}
	order := &o.turns
	if begun {
		order = &o.begun
	}
	*order = append(*order, turn{bundle: bundle, entry: o.entries, resumed: resumed})
}

// leave takes a bundle out, if it is there.
func (o *readingOrder) leave(bundle string, now time.Time) {
	if _, working := o.working[bundle]; working {
		delete(o.working, bundle)
		o.quietSince = now
	}
}

// readAtOnce bounds the records that are read in one turn, so that its cost does not grow with
// the number of rows. The attempts that have not begun have what the others leave, and one in any case.
const readAtOnce = 2

// resumedAtOnce is that bound for rows of an earlier life of the bridge: soon after a start, the records
// of each are read once.
const resumedAtOnce = 20

// againPause is the pause after a reading that has failed and for which the reports of the bundle wait: a server takes the
// worker of a run for lost that it has not heard of for a minute.
const againPause = 5 * time.Second

// readAgain gives a bundle another turn soon.
func (o *readingOrder) readAgain(bundle string, now time.Time) {
	is, working := o.working[bundle]
	if working && !slices.ContainsFunc(o.again, func(t turn) bool { return t.bundle == bundle }) {
		o.again = append(o.again, turn{bundle: bundle, entry: is.entry, read: now})
	}
}

// nextAgain returns the bundles of readAgain whose records are to be read now, and takes them out.
func (o *readingOrder) nextAgain(now time.Time) []string {
	var bundles []string
	for len(o.again) > 0 && len(bundles) < resumedAtOnce {
		first := o.again[0]
		if since := now.Sub(first.read); since >= 0 && since < againPause {
			break
		}
		o.again = o.again[1:]
		if o.working[first.bundle].entry == first.entry {
			bundles = append(bundles, first.bundle)
		}
	}
	return bundles
}

// next returns the bundles whose records are to be read now, and moves them to the end of their order.
func (o *readingOrder) next(now time.Time, pause time.Duration) []string {
	bundles := o.nextOf(&o.begun, readAtOnce, now, pause)
	return append(bundles, o.nextOf(&o.turns, max(readAtOnce-len(bundles), 1), now, pause)...)
}

// nextOf is next for one of the two orders.
func (o *readingOrder) nextOf(order *[]turn, atOnce int, now time.Time, pause time.Duration) []string {
	var bundles []string
	for range len(*order) { // each once
		first := (*order)[0]
		if o.working[first.bundle].entry != first.entry {
			*order = (*order)[1:]
			continue
		}
		if len(bundles) >= atOnce && !first.resumed || len(bundles) == resumedAtOnce {
			break
		}
		if since := now.Sub(first.read); since >= 0 && since < pause { // below 0 the clock was set back
			break
		}
		*order = append((*order)[1:], turn{bundle: first.bundle, entry: first.entry, read: now})
		bundles = append(bundles, first.bundle)
	}
	return bundles
}
