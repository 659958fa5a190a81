package server

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
)

// hub keeps in memory what the server needs to know of connected workers: their last check-in,
// the poll that waits for messages, and their duties. After a restart, check-ins and Run
// restore all of it. Its methods are safe for concurrent use and do not block.
type hub struct {
	timeout time.Duration
	started time.Time

	mu      sync.Mutex
	workers map[plan.Worker]*worker
	holders map[string]*worker // by bundle: the worker that has it
	// roomier is set when some worker may have more room than at the last call of offers.
	roomier  bool
	nextRead int64
	nextDuty int64
	staged   int // runs that wait for a worker
	bells    bells
	stopped  bool
}

// worker is one worker. The hub's lock guards it.
type worker struct {
	key       plan.Worker
	known     bool            // has checked in since the server started
	info      codalab.CheckIn // its last check-in, without runs
	group     string          // the uuid of the group that it serves; empty if it serves none
	seen      time.Time
	poll      *poll
	arrivals  int64            // check-ins so far
	applied   map[string]int64 // by run: the order of the last check-in whose report of it was stored
	runs      map[string]heldRun
	used      codalab.Resources // by all of runs
	unclaimed int64             // how many of runs
	duties    map[string]*duty
	reads     map[int64]*readRequest
	writes    []*writeRequest
	reported  map[string]reported // by run
}

// heldRun is a run that a worker has.
type heldRun struct {
	codalab.Resources
	ownerID string
	// starting is since when the run waits for the worker's claim; zero once it is claimed.
	starting time.Time
	// seen is when a check-in last listed the claimed run; zero before the first inspection of lost.
	seen time.Time
}

// duty is a message that the server repeats until the worker has done what it says.
type duty struct {
	kind    codalab.MessageType // run or kill
	uuid    string
	message string // of a kill
	sent    time.Time
	order   int64 // older duties are sent first
}

// poll is a check-in that waits to be answered.
type poll struct {
	worker *worker
	order  int64 // of arrival
	// charged is set if the time of the worker's runs counts against their owners' quotas: for
	// workers of root and of worker accounts, which are the site's.
	charged bool
	// ending is set if the worker tells that it ends.
	ending bool
	wake   chan struct{} // gets an element when there may be a message; never closed
	over   chan struct{} // closed when a newer check-in arrives, or the server stops
}

func newHub(timeout time.Duration, now time.Time) *hub {
	return &hub{
		timeout: timeout, started: now,
		workers: map[plan.Worker]*worker{}, holders: map[string]*worker{},
		bells: bells{ofID: map[string]map[*bell]bool{}, ofAddress: map[string]int{}},
	}
}

// worker returns a worker, and adds it if it is new. A new one counts as seen when the server
// started, so that it is not gone at once after a restart. The caller holds h.mu.
func (h *hub) worker(key plan.Worker) *worker {
	w, ok := h.workers[key]
	if !ok {
		w = &worker{
			key: key, seen: h.started, runs: map[string]heldRun{}, duties: map[string]*duty{},
			reads: map[int64]*readRequest{}, reported: map[string]reported{}, applied: map[string]int64{},
		}
		h.workers[key] = w
	}
	return w
}

// workersBeside returns how many workers the user of a new worker has; 0 for a worker that is not new.
func (h *hub) workersBeside(key plan.Worker) int {
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

// beginPoll records a check-in of a worker that serves a group, if group is not empty, and ends the
// poll of the previous one. changed reports whether what the worker can run may have changed.
//
// It refuses the check-in while another instance uses the worker's id (codalab.CheckIn.Instance).
// A worker that names no instance gives its id to the next that does, and so does one without runs that
// has said that it ends.
func (h *hub) beginPoll(key plan.Worker, in codalab.CheckIn, group string, now time.Time) (p *poll, changed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.worker(key)
	connected := w.known && now.Sub(w.seen) <= h.timeout
	over := w.info.IsTerminating && len(w.runs) == 0
	if connected && !over && w.info.Instance != "" && w.info.Instance != in.Instance {
		return nil, false, refuse(http.StatusConflict, "Worker '%s' is in use by another program, on %s. Stop that one, or give one of them another name; its id is free %s after its last check-in.",
			key.ID, w.info.Hostname, codalab.SpellDuration(h.timeout))
	}
	p = &poll{worker: w, wake: make(chan struct{}, 1), over: make(chan struct{})}
	changed = !connected || group != w.group || !sameOffer(w.info, in)
	h.roomier = h.roomier || changed
	for _, run := range in.Runs {
		if one, ok := w.runs[run.UUID]; ok {
			one.seen = now
			w.runs[run.UUID] = one
		}
	}
	in.Runs = nil
	w.known, w.info, w.group, w.seen = true, in, group, now
	if w.poll != nil {
		close(w.poll.over)
	}
	w.arrivals++
	p.order = w.arrivals
	if h.stopped {
		close(p.over)
		w.poll = nil
	} else {
		w.poll = p
	}
	return p, changed, nil
}

// sameOffer reports whether two check-ins offer the same resources. It ignores free disk, which
// changes all the time and which the next pass of Run considers.
func sameOffer(a, b codalab.CheckIn) bool {
	return a.Tag == b.Tag && a.TagExclusive == b.TagExclusive && a.CPUs == b.CPUs && a.GPUs == b.GPUs &&
		a.MemoryBytes == b.MemoryBytes && a.IsTerminating == b.IsTerminating && a.ExitAfterNumRuns == b.ExitAfterNumRuns && a.Closed == b.Closed && slices.Equal(a.Nodes, b.Nodes)
}

// endPoll ends a poll. It rings for messages that are not in the poll's answer.
func (h *hub) endPoll(p *poll) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.worker.poll != p {
		return
	}
	p.worker.poll = nil
	if p.worker.hasUnsent() {
		h.ring(p.worker)
	}
}

// hasUnsent reports whether the worker has not been sent some message even once.
func (w *worker) hasUnsent() bool {
	for _, d := range w.duties {
		if d.sent.IsZero() {
			return true
		}
	}
	for _, r := range w.reads {
		if r.sent.IsZero() {
			return true
		}
	}
	return len(w.writes) > 0
}

const (
	// maxMessages bounds the duties in one answer to a check-in.
	maxMessages = 200
	// resendAfter is the time after which a message is repeated that the worker has not acted
	// on. A kill message is repeated after half of it.
	resendAfter = 10 * time.Second
	// startLimit is the time after which an unclaimed run is staged again.
	startLimit = 5 * time.Minute
)

// dueMessages returns the duties, and the reads and writes that are due, and records that they are sent now.
func (h *hub) dueMessages(p *poll, now time.Time) (duties []duty, reads []codalab.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.worker.poll != p {
		return nil, nil
	}
	for _, r := range p.worker.reads {
		if r.message.Type == codalab.MessageNetcat && !r.sent.IsZero() {
			continue // a second one could do something twice
		}
		if resendDue(r.sent, now, resendAfter) {
			r.sent = now
			reads = append(reads, r.message)
		}
	}
	for _, r := range p.worker.writes {
		reads = append(reads, r.message)
		close(r.sent)
	}
	p.worker.writes = nil
	for _, d := range p.worker.duties {
		every := resendAfter
		if d.kind == codalab.MessageKill {
			every /= 2
		}
		if resendDue(d.sent, now, every) {
			duties = append(duties, *d)
		}
	}
	slices.SortFunc(duties, func(a, b duty) int { return cmp.Compare(a.order, b.order) })
	duties = duties[:min(len(duties), maxMessages)]
	for _, d := range duties {
		p.worker.duties[d.uuid].sent = now
	}
	return duties, reads
}

// stop ends all polls and doorbells, also those that begin later.
func (h *hub) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	for _, w := range h.workers {
		if w.poll != nil {
			close(w.poll.over)
			w.poll = nil
		}
	}
	for _, some := range h.bells.ofID {
		for b := range some {
			close(b.over)
		}
	}
}

func resendDue(sent, now time.Time, every time.Duration) bool {
	return sent.IsZero() || now.Sub(sent) >= every
}

// notify wakes a worker's poll or, if there is none, rings its doorbell. The caller holds h.mu.
func (h *hub) notify(w *worker) {
	if w.poll == nil {
		h.ring(w)
		return
	}
	select {
	case w.poll.wake <- struct{}{}:
	default: // it has been woken already
	}
}

// track updates the hub from bundles' states: the worker that has each bundle, and the
// worker's duty for it. A waiting poll gets the messages for all of them in one answer.
func (h *hub) track(bundles []plan.Bundle, resources func(codalab.Metadata) codalab.Resources) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range bundles {
		h.trackOne(b, resources(b.Metadata))
	}
}

func (h *hub) trackOne(b plan.Bundle, r codalab.Resources) {
	if old := h.holders[b.UUID]; old != nil && (old.key != b.Worker || !b.State.OnWorker()) {
		old.setRun(b.UUID, heldRun{}, false)
		h.roomier = true
		delete(old.duties, b.UUID)
		delete(old.reported, b.UUID)
		delete(old.applied, b.UUID)
		delete(h.holders, b.UUID)
		old.dropReads(b.UUID)
	}
	if !b.State.OnWorker() {
		return
	}
	w := h.worker(b.Worker)
	h.holders[b.UUID] = w
	hold, want := heldRun{Resources: r, ownerID: b.OwnerID}, duty{uuid: b.UUID}
	switch {
	case b.State == codalab.StateStarting:
		hold.starting = b.Assigned
		want.kind = codalab.MessageRun
	case b.KillMessage != "":
		want.kind, want.message = codalab.MessageKill, b.KillMessage
	}
	hold.seen = w.runs[b.UUID].seen
	if b.State == codalab.StateWorkerOffline {
		delete(w.reported, b.UUID) // also an unchanged report brings it back
	}
	w.setRun(b.UUID, hold, true)
	have := w.duties[b.UUID]
	switch {
	case want.kind == "":
		delete(w.duties, b.UUID)
	case have == nil || have.kind != want.kind:
		h.nextDuty++
		want.order = h.nextDuty
		w.duties[b.UUID] = &want
		h.notify(w)
	}
}

// setRun records that a worker has a run, or that it no longer has it.
func (w *worker) setRun(uuid string, run heldRun, has bool) {
	if old, ok := w.runs[uuid]; ok {
		w.used = plan.Minus(w.used, old.Resources)
		if !old.starting.IsZero() {
			w.unclaimed--
		}
	}
	delete(w.runs, uuid)
	if has {
		w.used = plan.Plus(w.used, run.Resources)
		if !run.starting.IsZero() {
			w.unclaimed++
		}
		w.runs[uuid] = run
	}
}

// offers returns the room of each connected worker, and the runs that all workers have. more is set if
// some worker may have more room than at the last call: then no run may take it before those that have
// waited longer were tried.
func (h *hub) offers(now time.Time) (all []plan.Offer, held plan.Held, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	more, h.roomier = h.roomier, false
	held = plan.Held{}
	for _, w := range h.workers {
		for _, run := range w.runs {
			held.Add(run.ownerID, w.key)
		}
		if !w.known || w.info.IsTerminating || now.Sub(w.seen) > h.timeout {
			continue
		}
		o := plan.Offer{
			Worker: w.key, Group: w.group, Tag: w.info.Tag, Exclusive: w.info.TagExclusive, SharedDisk: w.info.SharedFileSystem,
			Total:    codalab.Resources{CPUs: w.info.CPUs, GPUs: w.info.GPUs, Memory: w.info.MemoryBytes, Disk: w.info.FreeDiskBytes},
			RunsLeft: w.info.ExitAfterNumRuns, SecondsLeft: w.info.SecondsLeft, Running: len(w.runs),
			Closed: w.info.ExitAfterNumRuns <= 0, WhyClosed: w.info.Closed, Dependencies: map[[2]string]bool{},
		}
		if o.RunsLeft >= codalab.UnlimitedRuns {
			o.RunsLeft = math.MaxInt64
		}
		o.RunsLeft -= w.unclaimed // the worker itself counts the claimed runs
		for _, n := range w.info.Nodes {
			o.Nodes = append(o.Nodes, codalab.Resources{CPUs: n.CPUs, GPUs: n.GPUs, Memory: n.MemoryBytes, Disk: o.Total.Disk})
		}
		o.Free = plan.Minus(o.Total, w.used)
		for _, d := range w.info.Dependencies {
			o.Dependencies[d] = true
		}
		all = append(all, o)
	}
	return all, held, more
}

// moreRoom reports whether some worker may have more room than at the last call of offers.
func (h *hub) moreRoom() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.roomier
}

// info returns a worker's last check-in, without runs; a zero one if the worker is not known.
func (h *hub) info(key plan.Worker) codalab.CheckIn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w, ok := h.workers[key]; ok {
		return w.info
	}
	return codalab.CheckIn{}
}
