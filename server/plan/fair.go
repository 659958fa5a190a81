package plan

import (
	"cmp"
	"container/heap"
	"iter"
	"maps"
	"slices"
	"strings"
)

// RunCounts counts the runs that workers have, by owner.
type RunCounts map[string]RunCount

// RunCount counts the runs of one owner.
type RunCount struct {
	All int
	// Others counts those on workers of other users, which count against Quota.ParallelRuns.
	Others int
	// Sweeps counts those of each sweep, by its uuid.
	Sweeps map[string]int
}

// Add counts a run that a worker has.
func (c RunCounts) Add(ownerID string, on Worker) {
	n := c[ownerID]
	n.All++
	if on.User != ownerID {
		n.Others++
	}
	c[ownerID] = n
}

// AddSweep counts a run of a sweep that a worker has.
func (c RunCounts) AddSweep(ownerID, sweep string) {
	if sweep == "" {
		return
	}
	n := c[ownerID]
	if n.Sweeps == nil {
		n.Sweeps = map[string]int{}
	}
	n.Sweeps[sweep]++
	c[ownerID] = n
}

// clone returns counts that share nothing with c.
func (c RunCounts) clone() RunCounts {
	own := make(RunCounts, len(c))
	for id, n := range c {
		n.Sweeps = maps.Clone(n.Sweeps)
		own[id] = n
	}
	return own
}

// fairOrder yields the runs in the order in which Match tries them. The next run belongs to the
// owner with the fewest runs in counts; if several owners have equally few, to the one whose next run is
// oldest. The caller adds each run that it gives to a worker to counts before it takes the next one. The
// runs of one owner come by priority, 0 by default, and then by age
// (codalab/server/bundle_manager.py: _schedule_run_bundles_on_workers).
func fairOrder(runs map[string]*Waiting, counts RunCounts) iter.Seq[*Waiting] {
	return func(yield func(*Waiting) bool) {
		queue := owners{counts: counts}
		byOwner := map[string][]*Waiting{}
		for run := range maps.Values(runs) {
			byOwner[run.OwnerID] = append(byOwner[run.OwnerID], run)
		}
		for id, own := range byOwner {
			slices.SortFunc(own, func(a, b *Waiting) int {
				return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created), strings.Compare(a.UUID, b.UUID))
			})
			queue.waiting = append(queue.waiting, ownerRuns{id, own})
		}
		heap.Init(&queue)
		for len(queue.waiting) > 0 {
			first := &queue.waiting[0]
			run := first.runs[0]
			if first.runs = first.runs[1:]; !yield(run) {
				return
			}
			if len(first.runs) == 0 {
				heap.Pop(&queue)
			} else {
				heap.Fix(&queue, 0) // it may have one more run now
			}
		}
	}
}

// ownerRuns has the runs of an owner that wait; at least one.
type ownerRuns struct {
	ownerID string
	runs    []*Waiting
}

// owners is a heap of owners. The next one in turn is the first.
type owners struct {
	counts  RunCounts
	waiting []ownerRuns
}

func (o *owners) Len() int      { return len(o.waiting) }
func (o *owners) Swap(i, j int) { o.waiting[i], o.waiting[j] = o.waiting[j], o.waiting[i] }

func (o *owners) Less(i, j int) bool {
	a, b := o.waiting[i], o.waiting[j]
	return cmp.Or(
		cmp.Compare(o.counts[a.ownerID].All, o.counts[b.ownerID].All),
		a.runs[0].Created.Compare(b.runs[0].Created), strings.Compare(a.ownerID, b.ownerID),
	) < 0
}

// Push implements heap.Interface.
func (o *owners) Push(x any) { o.waiting = append(o.waiting, x.(ownerRuns)) } //nolint:forcetypeassert // nothing else is pushed

// Pop implements heap.Interface.
func (o *owners) Pop() any {
	last := o.waiting[len(o.waiting)-1]
	o.waiting = o.waiting[:len(o.waiting)-1]
	return last
}
