package hub

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
)

// Poll is a check-in that waits to be answered.
type Poll struct {
	hub    *Hub
	worker *worker
	order  int64         // of arrival
	wake   chan struct{} // gets an element when there may be a message; never closed
	over   chan struct{} // closed when a newer check-in arrives, or the server stops
}

// Worker returns the worker that checks in.
func (p *Poll) Worker() plan.Worker { return p.worker.key }

// End ends the Poll. It rings for messages that are not in the Poll's answer.
func (p *Poll) End() {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	if p.worker.poll != p {
		return
	}
	p.worker.poll = nil
	if p.worker.hasUnsent() {
		p.hub.ring(p.worker)
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

// Wait waits until there may be a message. It returns false when the Poll is over or end fires.
func (p *Poll) Wait(ctx context.Context, end <-chan time.Time) (again bool, err error) {
	select {
	case <-p.wake:
		return true, nil
	case <-p.over:
	case <-end:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return false, nil
}

// HasBell reports whether the worker has a doorbell and needs its check-ins answered at once: while a
// check-in of it waits, CodaLab's worker starts and ends no runs (codalab/worker/worker.py: checkin,
// process_runs). A worker that names its instance is not CodaLab's, and does so.
func (p *Poll) HasBell() bool {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	return p.worker.info.Instance == "" && p.hub.Bells.has(p.worker.key.ID)
}

const (
	// maxMessages bounds the duties in one answer to a check-in.
	maxMessages = 200
	// resendAfter is the time after which a message is repeated that the worker has not acted
	// on. A kill message is repeated after half of it.
	resendAfter = 10 * time.Second
)

// Duty is a message that the hub repeats until the worker has done what it says.
type Duty struct {
	Kind        codalab.MessageType // run or kill
	UUID        string
	KillMessage string // of a kill message

	sent  time.Time
	order int64 // older duties are sent first
}

// Due returns the duties, and the reads and writes that are due, and records that they are sent now. A
// Poll that is over gets none.
func (p *Poll) Due(now time.Time) (duties []Duty, reads []codalab.Message) {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
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
		if d.Kind == codalab.MessageKill {
			every /= 2
		}
		if resendDue(d.sent, now, every) {
			duties = append(duties, *d)
		}
	}
	slices.SortFunc(duties, func(a, b Duty) int { return cmp.Compare(a.order, b.order) })
	duties = duties[:min(len(duties), maxMessages)]
	for _, d := range duties {
		p.worker.duties[d.UUID].sent = now
	}
	return duties, reads
}

func resendDue(sent, now time.Time, every time.Duration) bool {
	return sent.IsZero() || now.Sub(sent) >= every
}

// reported is the last stored report of a run, and the time at which it was stored.
type reported struct {
	run codalab.Run
	at  time.Time
}

// NewReports returns the reports to store: those that differ from the last one or announce an
// end, and those of runs of which none was stored for a while. It drops reports of runs that the
// worker does not have, so that a check-in cannot keep the database busy with any number of them. It
// keeps some that announce the end of such a run, because the worker may not know that the end is
// acknowledged.
func (p *Poll) NewReports(runs []codalab.Run, now time.Time) []codalab.Run {
	const (
		refresh  = 30 * time.Second
		mostEnds = 200 // of runs that the worker does not have, in one check-in
	)
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	w := p.worker
	var fresh []codalab.Run
	ends := 0
	for _, run := range runs {
		if p.hub.holders[run.UUID] != w {
			if ends++; run.State != codalab.StateFinalizing || ends > mostEnds {
				continue
			}
		}
		last, ok := w.reported[run.UUID]
		if !ok || now.Sub(last.at) > refresh || run.State == codalab.StateFinalizing || !plan.SameReport(last.run, run) {
			fresh = append(fresh, run)
		}
	}
	return fresh
}

// AcceptReport returns false if the report of a later check-in was applied before; else it
// records this one. Check-ins are applied one after the other, but not always in the order of
// their arrival.
func (p *Poll) AcceptReport(uuid string) bool {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	if p.order < p.worker.applied[uuid] {
		return false
	}
	p.worker.applied[uuid] = p.order
	return true
}

// ReportStored records that a report was stored.
func (p *Poll) ReportStored(run codalab.Run, now time.Time) {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	if w := p.worker; p.hub.holders[run.UUID] == w {
		w.reported[run.UUID] = reported{run, now}
	}
}
