package server

import (
	"cmp"
	"container/heap"
	"iter"
	"maps"
	"slices"
	"strings"
)

// held counts the runs that workers have, by owner.
type held map[string]heldRuns

// heldRuns counts one owner's runs.
type heldRuns struct {
	all int
	// others counts those on workers of other users, which count against the owner's quota of
	// parallel runs.
	others int
}

// add counts a run of an owner that goes to a worker.
func (h held) add(ownerID string, o *offer) {
	n := h[ownerID]
	n.all++
	if o.key.User != ownerID {
		n.others++
	}
	h[ownerID] = n
}

// fairOrder yields runs in the order in which match tries them: the next run of the owner with the
// fewest runs on workers, in held, which the caller keeps up to date. Of owners with as many, the one
// whose next run is older comes first. The runs of one owner come by priority, 0 by default, and then
// by age (codalab/server/bundle_manager.py: _schedule_run_bundles_on_workers).
func fairOrder(runs map[string]*pending, h held) iter.Seq[*pending] {
	return func(yield func(*pending) bool) {
		queue := owners{held: h}
		byOwner := map[string][]*pending{}
		for p := range maps.Values(runs) {
			byOwner[p.ownerID] = append(byOwner[p.ownerID], p)
		}
		for id, own := range byOwner {
			slices.SortFunc(own, func(a, b *pending) int {
				return cmp.Or(cmp.Compare(b.priority, a.priority), a.created.Compare(b.created), strings.Compare(a.uuid, b.uuid))
			})
			queue.waiting = append(queue.waiting, ownerRuns{id, own})
		}
		heap.Init(&queue)
		for len(queue.waiting) > 0 {
			first := &queue.waiting[0]
			p := first.runs[0]
			if first.runs = first.runs[1:]; !yield(p) {
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

// ownerRuns are the runs of an owner that wait; at least one.
type ownerRuns struct {
	ownerID string
	runs    []*pending
}

// owners is a heap of owners, of which the next one in turn is the first.
type owners struct {
	held    held
	waiting []ownerRuns
}

func (o *owners) Len() int      { return len(o.waiting) }
func (o *owners) Swap(i, j int) { o.waiting[i], o.waiting[j] = o.waiting[j], o.waiting[i] }

func (o *owners) Less(i, j int) bool {
	a, b := o.waiting[i], o.waiting[j]
	return cmp.Or(
		cmp.Compare(o.held[a.ownerID].all, o.held[b.ownerID].all),
		a.runs[0].created.Compare(b.runs[0].created), strings.Compare(a.ownerID, b.ownerID),
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
