package bridge

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// rows are the ledger's rows in memory, indexed for what a step needs, so that its cost grows
// with the news and not with the number of rows. Only Step uses them.
type rows struct {
	byBundle map[string]*entry
	inFlight map[string]int                            // rows with a place in Slurm, by queue
	jobs     map[sbatch.JobID]int                      // rows with a place in Slurm that know their job's id, by it
	sleeping int                                       // rows that rest since before the start of the bridge
	upcoming int                                       // rows that are about to be submitted
	coming   map[plan.Lane]int                         // rows that are claimed or staged, and will wait for a place
	retrying map[plan.Lane]int                         // rows that Slurm or the disk refused at the last try to submit them
	staged   map[string]map[string]*entry              // rows that may wait for a place, by queue and bundle
	shared   map[plan.SubmissionName]map[string]*entry // rows in flight that share a submission, by it and by bundle
	tasks    map[taskKey]*entry                        // rows in flight of arrays that know their task
	packs    map[int64]map[string]*entry               // rows in flight of packs, by the generation and by bundle

	preparing map[plan.SubmissionName]int // rows whose specification for a shared submission is being written
	due       dueHeap
}

// taskKey identifies a task of the bridge's arrays.
type taskKey struct {
	generation int64
	index      int
}

// entry is one row and its place in the heap of due rows. A row that rests has an entry without
// the row.
type entry struct {
	bundle string
	row    *plan.Row
	due    time.Time
	index  int // in rows.due; -1 for a row without a due time
	// restarted is set if the row has rested since the start of the bridge.
	restarted bool
}

func newRows() *rows {
	return &rows{
		byBundle: map[string]*entry{},
		inFlight: map[string]int{}, jobs: map[sbatch.JobID]int{}, coming: map[plan.Lane]int{}, retrying: map[plan.Lane]int{}, staged: map[string]map[string]*entry{},
		shared: map[plan.SubmissionName]map[string]*entry{}, tasks: map[taskKey]*entry{}, preparing: map[plan.SubmissionName]int{}, packs: map[int64]map[string]*entry{},
	}
}

// awake notes that a row rests no longer since before the start.
func (t *rows) awake(e *entry) {
	if e.restarted {
		e.restarted = false
		t.sleeping--
	}
}

// has reports whether there is a row of a bundle, which may rest.
func (t *rows) has(bundle string) bool { return t.byBundle[bundle] != nil }

// putAsleep adds a row that rests since before the start of the bridge.
func (t *rows) putAsleep(bundle string) {
	t.byBundle[bundle] = &entry{bundle: bundle, index: -1, restarted: true}
	t.sleeping++
}

// wakeAll makes all rows due that rest since before the start.
func (t *rows) wakeAll(now time.Time) {
	for _, bundle := range slices.Sorted(maps.Keys(t.byBundle)) {
		if e := t.byBundle[bundle]; e.restarted && e.row == nil {
			e.due = now
			heap.Push(&t.due, e)
		}
	}
}

// rest leaves a row of an ended bundle to the ledger.
func (t *rows) rest(bundle string) {
	if e := t.byBundle[bundle]; e != nil && e.row != nil {
		t.unlist(e)
		e.row = nil
	}
}

// get returns a bundle's row, nil if there is none or if it rests. The caller must not change it.
func (t *rows) get(bundle string) *plan.Row {
	if e := t.byBundle[bundle]; e != nil {
		return e.row
	}
	return nil
}

// put adds a row or replaces the one of the same bundle. The caller must not change it
// afterwards.
func (t *rows) put(r *plan.Row) {
	e := t.byBundle[r.Bundle]
	var due time.Time
	if e != nil {
		due = e.due
		t.unlist(e)
	} else {
		e = &entry{bundle: r.Bundle, index: -1}
		t.byBundle[r.Bundle] = e
	}
	t.awake(e)
	e.row, e.due = r, r.DueAt
	switch {
	case r.InFlight():
		t.countInFlight(r, 1)
		t.listShared(e)
	case r.Phase == plan.Staging && r.Staged != nil:
		if t.staged[r.Queue] == nil {
			t.staged[r.Queue] = map[string]*entry{}
		}
		t.staged[r.Queue][r.Bundle] = e
	}
	t.countUnsubmitted(r, 1)
	switch {
	case r.DueAt.IsZero() && e.index >= 0:
		heap.Remove(&t.due, e.index)
	case !r.DueAt.IsZero() && e.index < 0:
		heap.Push(&t.due, e)
	case e.index >= 0 && !r.DueAt.Equal(due):
		heap.Fix(&t.due, e.index)
	}
}

// countInFlight counts a row that has a place in Slurm.
func (t *rows) countInFlight(r *plan.Row, n int) {
	t.inFlight[r.Queue] += n
	if id := r.Job.ID; id != 0 {
		if t.jobs[id] += n; t.jobs[id] == 0 {
			delete(t.jobs, id)
		}
	}
}

// countUnsubmitted adds n to upcoming if the row is about to be submitted, and to retrying if its last
// try failed. A row that pauses because the shared disk does not take its specification is not about to
// be submitted.
func (t *rows) countUnsubmitted(r *plan.Row, n int) {
	if r.Phase == plan.Submitting && r.SubmittedAt.IsZero() && r.DueAt.IsZero() && !r.Shared {
		t.upcoming += n
	}
	if r.Phase == plan.Claiming || r.Phase == plan.Staging && r.Staged == nil {
		if t.coming[r.Lane()] += n; t.coming[r.Lane()] == 0 {
			delete(t.coming, r.Lane())
		}
	}
	if retrying(r) {
		if t.retrying[r.Lane()] += n; t.retrying[r.Lane()] == 0 {
			delete(t.retrying, r.Lane())
		}
	}
}

// retrying reports whether the last try to submit a row failed. The members of a shared submission are one request.
func retrying(r *plan.Row) bool {
	return (r.Phase == plan.Staging || r.Phase == plan.Submitting && !r.Shared) && r.Staged != nil && !r.NeedsDisk() && r.FailedTries > 0
}

// unlist takes a row out of all indexes but byBundle and due.
func (t *rows) unlist(e *entry) {
	if e.row == nil {
		return
	}
	t.countUnsubmitted(e.row, -1)
	if e.row.InFlight() {
		t.countInFlight(e.row, -1)
		t.unlistShared(e.row)
	}
	delete(t.staged[e.row.Queue], e.row.Bundle)
}

// lanesOfPacks returns the lanes that have rows in packs.
func (t *rows) lanesOfPacks() map[plan.Lane]bool {
	lanes := map[plan.Lane]bool{}
	for _, members := range t.packs {
		for _, e := range members { // all have one lane
			lanes[e.row.Lane()] = true
			break
		}
	}
	return lanes
}

// listShared adds a row in flight to those that share its submission.
func (t *rows) listShared(e *entry) {
	r := e.row
	if !r.Shared {
		return
	}
	if t.shared[r.SharedName()] == nil {
		t.shared[r.SharedName()] = map[string]*entry{}
	}
	t.shared[r.SharedName()][r.Bundle] = e
	if r.PreparesShared() {
		t.preparing[r.SharedName()]++
	}
	if r.Pack {
		if t.packs[r.Generation] == nil {
			t.packs[r.Generation] = map[string]*entry{}
		}
		t.packs[r.Generation][r.Bundle] = e
		return
	}
	if !r.SubmittedAt.IsZero() {
		t.tasks[taskKey{r.Generation, r.Index}] = e
	}
}

// unlistShared removes a row from those that share its submission.
func (t *rows) unlistShared(r *plan.Row) {
	if !r.Shared {
		return
	}
	sharing := t.shared[r.SharedName()]
	if delete(sharing, r.Bundle); len(sharing) == 0 {
		delete(t.shared, r.SharedName())
	}
	if r.PreparesShared() {
		if t.preparing[r.SharedName()]--; t.preparing[r.SharedName()] == 0 {
			delete(t.preparing, r.SharedName())
		}
	}
	if r.Pack {
		if delete(t.packs[r.Generation], r.Bundle); len(t.packs[r.Generation]) == 0 {
			delete(t.packs, r.Generation)
		}
		return
	}
	key := taskKey{r.Generation, r.Index}
	if e := t.tasks[key]; e != nil && e.bundle == r.Bundle {
		delete(t.tasks, key)
	}
}

// sharing returns the rows in flight that share a submission, in the order of their places in it.
func (t *rows) sharing(name plan.SubmissionName) []*plan.Row {
	rows := make([]*plan.Row, 0, len(t.shared[name]))
	for _, e := range t.shared[name] {
		rows = append(rows, e.row)
	}
	slices.SortFunc(rows, func(a, b *plan.Row) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Bundle, b.Bundle))
	})
	return rows
}

// hasJob reports whether a row in flight has a task of an array, or a pack, of this generation, or knows its job by this id.
func (t *rows) hasJob(generation int64, id sbatch.JobID) bool {
	_, index, ok := id.ArrayTask()
	return ok && t.tasks[taskKey{generation, index}] != nil || !ok && len(t.packs[generation]) > 0 || t.jobs[id] > 0
}

// otherHasJob reports whether a row of another bundle has the job of the same id.
func (t *rows) otherHasJob(r *plan.Row) bool {
	others := t.jobs[r.Job.ID]
	if mine := t.get(r.Bundle); mine != nil && mine.InFlight() && mine.Job.ID == r.Job.ID {
		others--
	}
	return others > 0
}

func (t *rows) remove(bundle string) {
	e, ok := t.byBundle[bundle]
	if !ok {
		return
	}
	t.unlist(e)
	t.awake(e)
	if e.index >= 0 {
		heap.Remove(&t.due, e.index)
	}
	delete(t.byBundle, bundle)
}

// dueBy returns the bundles whose rows are due.
func (t *rows) dueBy(now time.Time) []string {
	if len(t.due) == 0 || t.due[0].due.After(now) {
		return nil
	}
	var bundles []string
	unseen := []int{0}
	for len(unseen) > 0 { // below a row that is not due, no row of the heap is due
		i := unseen[len(unseen)-1]
		unseen = unseen[:len(unseen)-1]
		if i >= len(t.due) || t.due[i].due.After(now) {
			continue
		}
		bundles = append(bundles, t.due[i].bundle)
		unseen = append(unseen, 2*i+1, 2*i+2)
	}
	return bundles
}

// nextDue returns the time at which the next row is due.
func (t *rows) nextDue() (time.Time, bool) {
	if len(t.due) == 0 {
		return time.Time{}, false
	}
	return t.due[0].due, true
}

// needDisk returns, in order, the bundles that need room on the shared disk before they can be submitted, except those
// whose rows name low already.
func (t *rows) needDisk(low string) []string {
	var waiting []string
	for bundle, e := range t.byBundle {
		if e.row != nil && e.row.NeedsDisk() && e.row.DiskLow != low {
			waiting = append(waiting, bundle)
		}
	}
	slices.Sort(waiting)
	return waiting
}

// anyWaiting reports whether there are staged rows.
func (t *rows) anyWaiting() bool {
	for _, staged := range t.staged {
		if len(staged) > 0 {
			return true
		}
	}
	return false
}

// mostRetrying bounds the retrying rows of a lane; at the bound the lane's others wait. Slurm may refuse all of
// them for days, at a limit of the queue, and each try costs a request.
const mostRetrying = 8

// waiting returns the rows of a queue that wait for a place in Slurm. Of a lane with mostRetrying
// retrying rows it returns these alone.
func (t *rows) waiting(queue string, now time.Time) []*plan.Row {
	var found []*plan.Row
	for _, e := range t.staged[queue] {
		if e.row.WaitsToSubmit(now) && (retrying(e.row) || t.retrying[e.row.Lane()] < mostRetrying) {
			found = append(found, e.row)
		}
	}
	return found
}

// dueHeap orders entries by when they are due (container/heap).
type dueHeap []*entry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push adds an entry; heap.Push calls it.
func (h *dueHeap) Push(x any) {
	e, _ := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop takes the last entry off; heap.Pop and heap.Remove call it.
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.index = -1
	return e
}
