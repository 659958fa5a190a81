package server

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// hub keeps what is known of workers only while they are connected: what they last reported,
// the check-in that waits, and what they are to be told. All of it comes back by itself after
// a restart. It is safe for concurrent use, and no method blocks.
type hub struct {
	resend  time.Duration
	timeout time.Duration
	started time.Time

	mu      sync.Mutex
	workers map[store.Worker]*worker
	holders map[string]*worker // of each bundle that a worker has
	// roomier says that a run that found no worker may find one now.
	roomier  bool
	nextRead int64
	nextDuty int64
	stopped  bool
}

// worker is one worker. The hub's lock guards it.
type worker struct {
	key       store.Worker
	known     bool            // it has checked in since the server started
	info      codalab.CheckIn // its last check-in, without runs
	seen      time.Time
	poll      *poll
	arrivals  int64            // check-ins so far
	applied   map[string]int64 // by held run: the number of the last check-in whose report of it was stored
	held      map[string]held
	used      codalab.Resources // by all of held
	unclaimed int64             // of held
	duties    map[string]*duty
	reads     map[int64]*read
	reported  map[string]reported
}

// held is what a run in a worker's hands takes of it.
type held struct {
	codalab.Resources
	// starting is since when the run waits to be claimed; zero once it is.
	starting time.Time
}

// duty is one thing that a worker is to be told until it is done.
type duty struct {
	kind    codalab.MessageType // run or kill
	uuid    string
	message string // of a kill
	sent    time.Time
	order   int64 // they are told in the order in which they came up
}

// poll is a check-in that waits to be answered.
type poll struct {
	worker *worker
	order  int64         // of arrival
	wake   chan struct{} // there may be something to say; never closed
	over   chan struct{} // closed when a newer check-in has come
}

func newHub(resend, timeout time.Duration, now time.Time) *hub {
	return &hub{
		resend: resend, timeout: timeout, started: now,
		workers: map[store.Worker]*worker{}, holders: map[string]*worker{},
	}
}

// get returns a worker; one that is not known yet counts as seen when the server started.
func (h *hub) get(key store.Worker) *worker {
	w, ok := h.workers[key]
	if !ok {
		w = &worker{
			key: key, seen: h.started, held: map[string]held{}, duties: map[string]*duty{},
			reads: map[int64]*read{}, reported: map[string]reported{}, applied: map[string]int64{},
		}
		h.workers[key] = w
	}
	return w
}

// arrive notes a check-in, and ends the poll of the check-in before. changed says whether the
// worker can now run other bundles than before.
func (h *hub) arrive(key store.Worker, in codalab.CheckIn, now time.Time) (p *poll, changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.get(key)
	p = &poll{worker: w, wake: make(chan struct{}, 1), over: make(chan struct{})}
	changed = !w.known || now.Sub(w.seen) > h.timeout || !sameOffer(w.info, in)
	h.roomier = h.roomier || changed
	in.Runs = nil
	w.known, w.info, w.seen = true, in, now
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
	return p, changed
}

// sameOffer says whether two check-ins offer the same. Free disk changes all the time and is
// left to the next pass.
func sameOffer(a, b codalab.CheckIn) bool {
	return a.Tag == b.Tag && a.TagExclusive == b.TagExclusive && a.CPUs == b.CPUs && a.GPUs == b.GPUs &&
		a.MemoryBytes == b.MemoryBytes && a.IsTerminating == b.IsTerminating && a.ExitAfterNumRuns == b.ExitAfterNumRuns
}

// leave ends a poll.
func (h *hub) leave(p *poll) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.worker.poll == p {
		p.worker.poll = nil
	}
}

// maxMessages bounds one answer to a check-in.
const maxMessages = 200

// due returns what a worker is to be told now and notes that it was told.
func (h *hub) due(p *poll, now time.Time) (duties []duty, reads []codalab.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.worker.poll != p {
		return nil, nil
	}
	for _, r := range p.worker.reads {
		if again(r.sent, now, h.resend) {
			r.sent = now
			reads = append(reads, r.message)
		}
	}
	for _, d := range p.worker.duties {
		every := h.resend
		if d.kind == codalab.MessageKill {
			every /= 2
		}
		if again(d.sent, now, every) {
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

// stop ends all polls, those to come as well.
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
}

func again(sent, now time.Time, every time.Duration) bool {
	return sent.IsZero() || now.Sub(sent) >= every
}

func (w *worker) notify() {
	if w.poll == nil {
		return
	}
	select {
	case w.poll.wake <- struct{}{}:
	default: // it is about to look anyway
	}
}

// placed is a bundle and what it takes of a worker.
type placed struct {
	store.Bundle
	resources codalab.Resources
}

// place brings the hub in line with bundles' states: which worker holds each, and what that
// worker is to be told of it. A worker that waits is told of all of them in one answer.
func (h *hub) place(bundles []placed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range bundles {
		h.placeOne(b.Bundle, b.resources)
	}
}

func (h *hub) placeOne(b store.Bundle, r codalab.Resources) {
	if old := h.holders[b.UUID]; old != nil && (old.key != b.Worker || !b.State.OnWorker()) {
		old.hold(b.UUID, held{}, false)
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
	w := h.get(b.Worker)
	h.holders[b.UUID] = w
	hold, want := held{Resources: r}, duty{uuid: b.UUID}
	switch {
	case b.State == codalab.StateStarting:
		hold.starting = b.Assigned
		want.kind = codalab.MessageRun
	case b.KillMessage != "":
		want.kind, want.message = codalab.MessageKill, b.KillMessage
	}
	w.hold(b.UUID, hold, true)
	have := w.duties[b.UUID]
	switch {
	case want.kind == "":
		delete(w.duties, b.UUID)
	case have == nil || have.kind != want.kind:
		h.nextDuty++
		want.order = h.nextDuty
		w.duties[b.UUID] = &want
		w.notify()
	}
}

// hold notes that a worker has a run, or has it no more.
func (w *worker) hold(uuid string, run held, has bool) {
	count := func(run held, sign int64) {
		w.used.CPUs += sign * run.CPUs
		w.used.GPUs += sign * run.GPUs
		w.used.Memory += sign * run.Memory
		if !run.starting.IsZero() {
			w.unclaimed += sign
		}
	}
	if old, ok := w.held[uuid]; ok {
		count(old, -1)
	}
	delete(w.held, uuid)
	if has {
		count(run, 1)
		w.held[uuid] = run
	}
}

// moreRoom says whether there may be room that was not there when it was last asked.
func (h *hub) moreRoom() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	more := h.roomier
	h.roomier = false
	return more
}

// overdue returns the runs that nobody has claimed for too long, or whose worker has gone
// before it did.
func (h *hub) overdue(now time.Time, limit time.Duration) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var uuids []string
	for _, w := range h.workers {
		gone := now.Sub(w.seen) > h.timeout
		for uuid, run := range w.held {
			if !run.starting.IsZero() && (gone || now.Sub(run.starting) > limit) {
				uuids = append(uuids, uuid)
			}
		}
		if gone && len(w.held) == 0 && len(w.reads) == 0 && w.poll == nil {
			delete(h.workers, w.key)
		}
	}
	return uuids
}

// preemptible says whether a worker called itself so.
func (h *hub) preemptible(key store.Worker) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	w, ok := h.workers[key]
	return ok && w.info.Preemptible
}
