package hub

import (
	"maps"
	"math"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
)

// trackedRun is a run that a worker has.
type trackedRun struct {
	codalab.Resources
	ownerID string
	// sweep is the uuid of the run's sweep, or empty.
	sweep string
	// starting is the time since which the run waits for the worker's claim; zero once it is claimed.
	starting time.Time
	// seen is the time at which a check-in last listed the claimed run; zero before the first Tick after that.
	seen time.Time
	// abandoned means that the worker has begun again without the run.
	abandoned bool
	// offline means that the bundle is worker_offline: the run is known to be lost.
	offline bool
}

// startLimit is the time within which a worker must claim a run. A worker that says why it takes no runs now
// (codalab.CheckIn.Closed) has closedLimit: it refuses a run that was on its way, and a claim that it has sent before
// needs less. CodaLab's own workers have startLimit always.
const startLimit, closedLimit = 5 * time.Minute, resendAfter

// Track updates the hub from bundles' states: the worker that has each bundle, and the
// worker's duty for it. A held check-in gets the messages for all of them in one answer. resources
// returns the resources that a bundle's metadata requests.
func (h *Hub) Track(bundles []plan.Bundle, resources func(codalab.Metadata) codalab.Resources) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range bundles {
		h.trackOne(b, resources(b.Metadata))
	}
}

func (h *Hub) trackOne(b plan.Bundle, r codalab.Resources) {
	if old := h.workerOf[b.UUID]; old != nil && (old.key != b.Worker || !b.State.OnWorker()) {
		h.forget(b.UUID)
	}
	if !b.State.OnWorker() {
		return
	}
	w := h.worker(b.Worker)
	h.workerOf[b.UUID] = w
	run, want := trackedRun{Resources: r, ownerID: b.OwnerID, sweep: b.Metadata.Sweep()}, Duty{UUID: b.UUID}
	switch {
	case b.State == codalab.StateStarting:
		run.starting = b.Assigned
		want.Kind = codalab.MessageRun
	case b.KillMessage != "":
		want.Kind, want.KillMessage = codalab.MessageKill, b.KillMessage
	}
	run.seen, run.abandoned = w.runs[b.UUID].seen, w.runs[b.UUID].abandoned && b.State != codalab.StateStarting
	if run.offline = b.State == codalab.StateWorkerOffline; run.offline {
		delete(w.stored, b.UUID) // also an unchanged report brings it back
	}
	if w.last.Together > 0 && run.starting.IsZero() && !w.runs[b.UUID].starting.IsZero() {
		h.roomier = true // it has claimed the run, and takes another one ahead
	}
	w.dropRun(b.UUID)
	w.addRun(b.UUID, run)
	have := w.duties[b.UUID]
	switch {
	case want.Kind == "":
		delete(w.duties, b.UUID)
	case have == nil || have.Kind != want.Kind:
		h.lastDuty++
		want.order = h.lastDuty
		w.duties[b.UUID] = &want
		h.notify(w)
	case have.KillMessage != want.KillMessage: // a user wants its upload given up too
		have.KillMessage, have.sent = want.KillMessage, time.Time{}
		h.notify(w)
	}
}

// Forget takes a bundle that was deleted from the worker that has it.
func (h *Hub) Forget(uuid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.workerOf[uuid] != nil {
		h.forget(uuid)
	}
}

// forget takes a bundle from the worker that has it. The caller holds h.mu.
func (h *Hub) forget(uuid string) {
	w := h.workerOf[uuid]
	w.dropRun(uuid)
	h.roomier = true
	delete(w.duties, uuid)
	delete(w.stored, uuid)
	delete(w.applied, uuid)
	delete(h.workerOf, uuid)
	w.dropRequests(uuid)
}

func (w *worker) addRun(uuid string, run trackedRun) {
	w.runs[uuid] = run
	w.used = plan.Plus(w.used, run.Resources)
	if !run.starting.IsZero() {
		w.unclaimed++
	}
}

func (w *worker) dropRun(uuid string) {
	run, ok := w.runs[uuid]
	if !ok {
		return
	}
	delete(w.runs, uuid)
	w.used = plan.Minus(w.used, run.Resources)
	if !run.starting.IsZero() {
		w.unclaimed--
	}
}

// TakeCapacities returns Capacities with the dependencies of workers, and the runs that all workers have. more is set if
// some worker may have more room than at the last call: then no run may take it before those that have
// waited longer were tried.
func (h *Hub) TakeCapacities(now time.Time) (all []plan.Capacity, counts plan.RunCounts, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	more, h.roomier = h.roomier, false
	counts = plan.RunCounts{}
	all = make([]plan.Capacity, 0, len(h.workers))
	for _, w := range h.workers {
		for _, run := range w.runs {
			counts.Add(run.ownerID, w.key)
			counts.AddSweep(run.ownerID, run.sweep)
		}
		if h.takesRuns(w, now) {
			all = append(all, w.capacity())
		}
	}
	return append(all, h.awayQueues(now)...), counts, more
}

// Capacities returns the room of each connected worker, and the queues that are away, without the dependencies that
// workers have.
func (h *Hub) Capacities(now time.Time) (all []plan.Capacity) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.workers {
		if h.takesRuns(w, now) {
			all = append(all, w.room())
		}
	}
	return append(all, h.awayQueues(now)...)
}

// takesRuns reports whether a worker is connected, and does not end. The caller holds h.mu.
func (h *Hub) takesRuns(w *worker, now time.Time) bool {
	return h.connected(w, now) && !w.last.IsTerminating
}

// capacity returns the capacity of a worker.
func (w *worker) capacity() plan.Capacity {
	c := w.room()
	if len(w.last.Dependencies) == 0 {
		return c
	}
	c.Dependencies = make(map[[2]string]bool, len(w.last.Dependencies))
	for _, d := range w.last.Dependencies {
		c.Dependencies[d] = true
	}
	return c
}

// room returns the capacity of a worker without the dependencies that it has.
func (w *worker) room() plan.Capacity {
	c := plan.Capacity{
		Worker: w.key, Group: w.group, Tag: w.last.Tag, Exclusive: w.last.TagExclusive, SharedDisk: w.last.SharedFileSystem,
		Total:    codalab.Resources{CPUs: w.last.CPUs, GPUs: w.last.GPUs, Memory: w.last.MemoryBytes, Disk: w.last.FreeDiskBytes},
		RunsLeft: w.last.ExitAfterNumRuns, SecondsLeft: w.last.SecondsLeft, Running: len(w.runs),
		Closed: w.last.ExitAfterNumRuns <= 0, WhyClosed: w.last.Closed,
		Secrets: w.last.Secrets, Queue: w.last.Queue, Ahead: max(0, w.last.Together-w.unclaimed),
	}
	if c.RunsLeft >= codalab.UnlimitedRuns {
		c.RunsLeft = math.MaxInt64
	}
	c.RunsLeft -= w.unclaimed // the worker itself counts the claimed runs
	for _, n := range w.last.Nodes {
		c.Nodes = append(c.Nodes, codalab.Resources{CPUs: n.CPUs, GPUs: n.GPUs, Memory: n.MemoryBytes, Disk: c.Total.Disk})
	}
	c.Free = plan.Minus(c.Total, w.used)
	return c
}

// MoreRoom reports whether some worker may have more room than at the last call of TakeCapacities.
func (h *Hub) MoreRoom() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.roomier
}

// startLimit returns the time within which the worker must claim a run.
func (w *worker) startLimit() time.Duration {
	if w.last.Closed != "" {
		return closedLimit
	}
	return startLimit
}

// Tick lets the hub know the time, and returns the runs that have waited too long. No worker has claimed the
// unclaimed ones within its start limit, or their worker has gone without claiming them. The claimed ones are lost
// that no check-in of their worker has listed within the timeout: the worker has gone, or has lost the run. So are those
// of an earlier start of their worker, unless the latest one lists them. The first Tick after a claim counts like such a
// check-in. Runs that are offline already are left out. Tick forgets workers that have gone and have no runs.
func (h *Hub) Tick(now time.Time) (unclaimed, lost []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.workers {
		gone := now.Sub(w.seen) > h.timeout
		for uuid, run := range w.runs {
			switch {
			case !run.starting.IsZero():
				if gone || now.Sub(run.starting) > w.startLimit() {
					unclaimed = append(unclaimed, uuid)
				}
			case run.abandoned && !run.offline:
				lost = append(lost, uuid)
			case run.seen.IsZero():
				run.seen = now
				w.runs[uuid] = run
			case !run.offline && now.Sub(run.seen) > h.timeout:
				lost = append(lost, uuid)
			}
		}
		if gone && len(w.runs) == 0 && len(w.requests) == 0 && w.held == nil {
			h.rememberAway(w)
			delete(h.workers, w.key)
		}
	}
	maps.DeleteFunc(h.gone, func(_ plan.Worker, q LastSeen) bool { return now.Sub(q.At) > RememberQueues })
	return unclaimed, lost
}
