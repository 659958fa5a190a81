package hub

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
)

// Hub has the connected workers.
type Hub struct {
	// Bells has the doorbells of workers.
	Bells *Bells

	timeout time.Duration
	started time.Time

	mu       sync.Mutex
	workers  map[plan.Worker]*worker
	workerOf map[string]*worker       // by bundle: the worker that has it
	gone     map[plan.Worker]LastSeen // queues that are away and have no runs
	// roomier is set when some worker may have more room than at the last call of TakeCapacities.
	roomier bool
	// lastRequest is the number of the last Request. It begins with the time of the start, so that no late reply
	// to a request of an earlier server has the number of a new request.
	lastRequest int64
	lastDuty    int64
	stopped     bool
}

// worker is one worker. The hub's lock guards it.
type worker struct {
	key       plan.Worker
	known     bool            // has checked in since the server started
	last      codalab.CheckIn // its last check-in, without reports
	group     string          // the uuid of the group that it serves; empty if it serves none
	start     int64           // the number of its last start (store.User.Start); 0 if it has no worker token
	seen      time.Time
	held      *CheckIn         // the check-in that is held; nil for none
	arrivals  int64            // check-ins so far
	applied   map[string]int64 // by run: the order of the last check-in whose report of it was applied
	runs      map[string]trackedRun
	used      codalab.Resources // by all of runs
	unclaimed int64             // the number of runs that the worker has not claimed
	duties    map[string]*Duty
	requests  map[int64]*Request
	writes    []*write
	stored    map[string]storedReport // the last report of each run
}

// New returns a hub without workers. A worker counts as gone after a time without check-ins; now is the
// server's start.
func New(timeout time.Duration, now time.Time) *Hub {
	return &Hub{
		Bells:   &Bells{ofID: map[string]map[*Bell]bool{}, ofAddress: map[string]int{}},
		timeout: timeout, started: now, lastRequest: now.UnixMicro(),
		workers: map[plan.Worker]*worker{}, workerOf: map[string]*worker{}, gone: map[plan.Worker]LastSeen{},
	}
}

// worker returns a worker, and adds it if it is new. A new one counts as seen when the server
// started, so that it is not gone at once after a restart. The caller holds h.mu.
func (h *Hub) worker(key plan.Worker) *worker {
	w, ok := h.workers[key]
	if !ok {
		w = &worker{
			key: key, seen: h.started, runs: map[string]trackedRun{}, duties: map[string]*Duty{},
			requests: map[int64]*Request{}, stored: map[string]storedReport{}, applied: map[string]int64{},
		}
		h.workers[key] = w
	}
	return w
}

// connected reports whether the worker has checked in lately.
func (h *Hub) connected(w *worker, now time.Time) bool {
	return w.known && now.Sub(w.seen) <= h.timeout
}

// Others returns the number of workers that the user of a new worker has already; 0 for a worker that is
// not new.
func (h *Hub) Others(key plan.Worker) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	if h.workers[key] != nil {
		return n // it is counted already
	}
	for other := range h.workers {
		if other.User == key.User {
			n++
		}
	}
	return n
}

// InUseError means that another program uses a worker's id.
type InUseError struct {
	Hostname string // of the other program
}

func (e *InUseError) Error() string { return "the worker's id is in use on " + e.Hostname }

// ErrReplaced means that a worker has begun again since the start that checks in.
var ErrReplaced = errors.New("the worker has begun again since")

// Arrival is a check-in that has come.
type Arrival struct {
	codalab.CheckIn

	// Group is the uuid of the group that the worker serves; empty if it serves none.
	Group string
	// Start is the number of the worker's start (store.User.Start); 0 without a worker token.
	Start int64
}

// BeginCheckIn records a check-in of a worker, and ends the worker's previous check-in. The caller calls End. changed
// means that the worker may be able to run other runs than before.
//
// It fails with an InUseError while another instance uses the worker's id (codalab.CheckIn.Instance).
// A worker that names no instance gives its id to the next that does, and so does one without runs that
// has said that it ends.
//
// A later start of the worker replaces an earlier one at once: the batch system has started its job again. The earlier
// one gets ErrReplaced. Its claimed runs are lost, except those that the later one reports.
func (h *Hub) BeginCheckIn(key plan.Worker, a Arrival, now time.Time) (c *CheckIn, changed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w, in, group := h.worker(key), a.CheckIn, a.Group
	connected := h.connected(w, now)
	over := w.last.IsTerminating && len(w.runs) == 0
	other := w.known && w.last.Instance != in.Instance
	switch {
	case w.outlived(a.Start):
		return nil, false, ErrReplaced
	case a.Start <= w.start && connected && !over && w.last.Instance != "" && other:
		return nil, false, &InUseError{w.last.Hostname}
	}
	c = &CheckIn{hub: h, worker: w, start: a.Start, wake: make(chan struct{}, 1), over: make(chan struct{})}
	if a.Start > w.start && other {
		c.replaced = w.last.Hostname
		w.abandon(in.Reports)
	}
	w.start = max(w.start, a.Start)
	changed = !connected || group != w.group || !sameCapacity(w.last, in)
	h.roomier = h.roomier || changed
	for _, run := range in.Reports {
		if one, ok := w.runs[run.UUID]; ok {
			one.seen, one.abandoned = now, false // an earlier start may have lost it, and not this one
			w.runs[run.UUID] = one
		}
	}
	in.Reports = nil
	w.known, w.last, w.group, w.seen = true, in, group, now
	delete(h.gone, key)
	if w.held != nil {
		close(w.held.over)
	}
	w.arrivals++
	c.order = w.arrivals
	if h.stopped {
		close(c.over)
		w.held = nil
	} else {
		w.held = c
	}
	return c, changed, nil
}

// outlived reports whether a later start has followed the one with this number. A program without a worker token has no
// number. The caller holds h.mu.
func (w *worker) outlived(start int64) bool { return start > 0 && start < w.start }

// abandon notes that the worker's claimed runs are lost, except those that it reports. The caller holds h.mu.
func (w *worker) abandon(reports []codalab.RunReport) {
	for uuid, run := range w.runs {
		reported := slices.ContainsFunc(reports, func(r codalab.RunReport) bool { return r.UUID == uuid })
		if run.starting.IsZero() && !reported {
			run.abandoned = true
			w.runs[uuid] = run
		}
	}
}

// sameCapacity reports whether two check-ins tell the same capacity. It ignores free disk, which changes
// all the time.
func sameCapacity(a, b codalab.CheckIn) bool {
	return a.Tag == b.Tag && a.TagExclusive == b.TagExclusive && a.CPUs == b.CPUs && a.GPUs == b.GPUs &&
		a.MemoryBytes == b.MemoryBytes && a.IsTerminating == b.IsTerminating && a.ExitAfterNumRuns == b.ExitAfterNumRuns && a.Closed == b.Closed && a.Secrets == b.Secrets && a.Together == b.Together && slices.Equal(a.Nodes, b.Nodes) &&
		boundsOf(a.Queue) == boundsOf(b.Queue)
}

// queueBounds are those numbers of a queue that decide which runs it takes.
type queueBounds struct {
	seconds int64
	elastic bool
}

func boundsOf(q *codalab.QueueInfo) queueBounds {
	if q == nil {
		return queueBounds{}
	}
	return queueBounds{q.MaxSeconds, q.Elastic}
}

// Stop ends all held check-ins and doorbells, also those that begin later. Bells.Wait waits for the doorbells.
func (h *Hub) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	for _, w := range h.workers {
		if w.held != nil {
			close(w.held.over)
			w.held = nil
		}
	}
	h.Bells.stop()
}

// notify wakes a worker's held check-in or, if there is none, rings its doorbell. The caller holds h.mu.
func (h *Hub) notify(w *worker) {
	if w.held == nil {
		h.ring(w)
		return
	}
	select {
	case w.held.wake <- struct{}{}:
	default: // it has been woken already
	}
}

// ring rings the doorbells with the id of a worker that has checked in. The caller holds h.mu.
func (h *Hub) ring(w *worker) {
	if w.known {
		h.Bells.ring(w.key.ID)
	}
}

// LastCheckIn returns a worker's last check-in, without reports; a zero one if the worker is not known.
func (h *Hub) LastCheckIn(key plan.Worker) codalab.CheckIn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w, ok := h.workers[key]; ok {
		return w.last
	}
	return codalab.CheckIn{}
}

// Silent returns the time since a worker last checked in. For one that has not since the server started,
// it is the time since then.
func (h *Hub) Silent(key plan.Worker, now time.Time) time.Duration { return now.Sub(h.seen(key)) }

func (h *Hub) seen(key plan.Worker) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.workers[key]; w != nil {
		return w.seen
	}
	return h.started
}

// Connected returns the workers that have checked in lately, by id.
func (h *Hub) Connected(now time.Time) []codalab.WorkerInfo {
	h.mu.Lock()
	defer h.mu.Unlock()
	workers := []codalab.WorkerInfo{}
	for _, w := range h.workers {
		if h.connected(w, now) {
			workers = append(workers, w.shown())
		}
	}
	slices.SortFunc(workers, func(a, b codalab.WorkerInfo) int {
		return cmp.Or(strings.Compare(a.WorkerID, b.WorkerID), strings.Compare(a.UserID, b.UserID))
	})
	return workers
}

// shown returns a worker as the server lists it.
func (w *worker) shown() codalab.WorkerInfo {
	one := codalab.WorkerInfo{
		UserID: w.key.User, WorkerID: w.key.ID, CPUs: w.last.CPUs, GPUs: w.last.GPUs,
		MemoryBytes: w.last.MemoryBytes, FreeDiskBytes: w.last.FreeDiskBytes, CheckInTime: w.seen.Unix(),
		RunUUIDs:         slices.AppendSeq([]string{}, maps.Keys(w.runs)),
		SharedFileSystem: w.last.SharedFileSystem, TagExclusive: w.last.TagExclusive, ExitAfterNumRuns: w.last.ExitAfterNumRuns,
		IsTerminating: w.last.IsTerminating, Preemptible: w.last.Preemptible, CPUsInUse: w.used.CPUs, GPUsInUse: w.used.GPUs,
	}
	slices.Sort(one.RunUUIDs)
	if w.last.Tag != "" {
		one.Tag = new(w.last.Tag)
	}
	if w.group != "" {
		one.GroupUUID = new(w.group)
	}
	return one
}

// Counts is the number of things of each kind.
type Counts struct{ Workers, CheckIns, Runs int }

// Counts counts connected workers, their held check-ins, and the runs that workers have.
func (h *Hub) Counts(now time.Time) Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := Counts{Runs: len(h.workerOf)}
	for _, w := range h.workers {
		if h.connected(w, now) {
			c.Workers++
		}
		if w.held != nil {
			c.CheckIns++
		}
	}
	return c
}
