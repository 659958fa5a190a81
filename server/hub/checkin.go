package hub

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
)

// CheckIn is a check-in that the server holds: it waits for its answer.
type CheckIn struct {
	hub    *Hub
	worker *worker
	order  int64 // of arrival
	start  int64 // the number of the worker's start
	// replaced is the host of the program that this start of the worker replaces; empty if it replaces none.
	replaced string
	wake     chan struct{} // gets an element when there may be a message; never closed
	over     chan struct{} // closed when a newer check-in arrives, or the server stops
}

// Worker returns the worker that checks in.
func (c *CheckIn) Worker() plan.Worker { return c.worker.key }

// Replaces returns the host of the program that was the worker before this check-in, if the worker has begun again as
// another program; else an empty text.
func (c *CheckIn) Replaces() string { return c.replaced }

// End notes that the check-in is answered, or has failed. It rings for messages that are not in the answer.
func (c *CheckIn) End() {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if c.worker.held != c {
		return
	}
	c.worker.held = nil
	if c.worker.hasUnsent() {
		c.hub.ring(c.worker)
	}
}

// hasUnsent reports whether the worker has not been sent some message even once.
func (w *worker) hasUnsent() bool {
	for _, d := range w.duties {
		if d.sent.IsZero() {
			return true
		}
	}
	for _, r := range w.requests {
		if r.sent.IsZero() {
			return true
		}
	}
	return len(w.writes) > 0
}

// Wait waits until there may be a message. It returns false when the check-in is over or end fires.
func (c *CheckIn) Wait(ctx context.Context, end <-chan time.Time) (again bool, err error) {
	select {
	case <-c.wake:
		return true, nil
	case <-c.over:
	case <-end:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return false, nil
}

// MayHold reports whether the server may hold the check-in. It may not hold one of CodaLab's own worker that has a
// doorbell: while a check-in of it is held, that worker starts and ends no runs (codalab/worker/worker.py: checkin,
// process_runs), and it needs no held check-in to learn of messages. A worker that names its instance is not
// CodaLab's own, and starts and ends runs while its check-in is held.
func (c *CheckIn) MayHold() bool {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	return c.worker.last.Instance != "" || !c.hub.Bells.has(c.worker.key.ID)
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

// Due returns the duties, and the messages of the requests and writes, that are due, and records that they
// are sent now. A check-in that is over gets none.
func (c *CheckIn) Due(now time.Time) (duties []Duty, messages []codalab.Message) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if c.worker.held != c {
		return nil, nil
	}
	for _, r := range c.worker.requests {
		if r.message.Type == codalab.MessageNetcat && !r.sent.IsZero() {
			continue // a second one could do something twice
		}
		if resendDue(r.sent, now, resendAfter) {
			r.sent = now
			messages = append(messages, r.message)
		}
	}
	for _, r := range c.worker.writes {
		messages = append(messages, r.message)
		close(r.sent)
	}
	c.worker.writes = nil
	for _, d := range c.worker.duties {
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
		c.worker.duties[d.UUID].sent = now
	}
	return duties, messages
}

func resendDue(sent, now time.Time, every time.Duration) bool {
	return sent.IsZero() || now.Sub(sent) >= every
}

// storedReport is the last stored report of a run, and the time at which it was stored.
type storedReport struct {
	report codalab.RunReport
	at     time.Time
}

// ReportsToStore returns the reports to store: those that differ from the last one or announce an
// end, and those of runs of which none was stored for a while. It drops reports of runs that the
// worker does not have, so that a check-in cannot keep the database busy with any number of them. It
// keeps some that announce the end of such a run, because the worker may not know that the end is
// acknowledged.
func (c *CheckIn) ReportsToStore(reports []codalab.RunReport, now time.Time) []codalab.RunReport {
	const (
		refresh  = 30 * time.Second
		mostEnds = 200 // of runs that the worker does not have, in one check-in
	)
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	w := c.worker
	if w.outlived(c.start) {
		return nil // the worker has begun again since
	}
	var fresh []codalab.RunReport
	ends := 0
	for _, report := range reports {
		if c.hub.workerOf[report.UUID] != w {
			if report.State != codalab.StateFinalizing || ends == mostEnds {
				continue
			}
			ends++
		}
		last, ok := w.stored[report.UUID]
		if !ok || now.Sub(last.at) > refresh || report.State == codalab.StateFinalizing || !plan.SameReport(last.report, report) {
			fresh = append(fresh, report)
		}
	}
	return fresh
}

// OwnReport is a report of a run that the reporting worker has.
type OwnReport struct {
	*codalab.RunReport

	// Memory is the number of bytes that the run may use; 0 if that is unlimited.
	Memory int64
}

// OwnReports returns the reports of runs that the worker has. They point into the slice.
func (c *CheckIn) OwnReports(reports []codalab.RunReport) []OwnReport {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	w := c.worker
	if w.outlived(c.start) {
		return nil // the worker has begun again since
	}
	own := make([]OwnReport, 0, len(reports))
	for i := range reports {
		if run, ok := w.runs[reports[i].UUID]; ok && c.hub.workerOf[reports[i].UUID] == w {
			own = append(own, OwnReport{&reports[i], run.Resources.Memory})
		}
	}
	return own
}

// AcceptReport returns false if the report of a later check-in was applied before, or the worker has begun again; else it
// records this one. Check-ins are applied one after the other, but not always in the order of
// their arrival.
func (c *CheckIn) AcceptReport(uuid string) bool {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if c.order < c.worker.applied[uuid] || c.worker.outlived(c.start) {
		return false
	}
	c.worker.applied[uuid] = c.order
	return true
}

// NoteStored records that a report was stored.
func (c *CheckIn) NoteStored(report codalab.RunReport, now time.Time) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if w := c.worker; c.hub.workerOf[report.UUID] == w {
		w.stored[report.UUID] = storedReport{report, now}
	}
}
