package bridge

import (
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/report"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// reports is the book of reports (package report) for many goroutines, with a signal for each queue when
// there is something to report. Its zero value must be initialized.
type reports struct {
	mu      sync.Mutex
	book    *report.Book
	signals map[string]signals // by queue
}

// signals wake the check-ins of a queue. urgent holds a token when a run has entered another state of
// CodaLab's, or when the last check-in had no room for all that must be reported; other when something else
// is worth a check-in.
type signals struct{ urgent, other chan struct{} }

func (r *reports) init() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.book, r.signals = report.NewBook(), map[string]signals{}
}

// signalsOf returns a queue's signals. The caller holds r.mu.
func (r *reports) signalsOf(queue string) signals {
	s, ok := r.signals[queue]
	if !ok {
		s = signals{make(chan struct{}, 1), make(chan struct{}, 1)}
		r.signals[queue] = s
	}
	return s
}

// signal wakes a queue's check-ins, as urgent as that is. The caller holds r.mu.
func (r *reports) signal(queue string, how report.Urgency) {
	s := r.signalsOf(queue)
	switch how {
	case report.None:
	case report.Words:
		signal(s.other)
	case report.Old, report.Urgent:
		signal(s.urgent)
	}
}

// signal puts a token into a channel of capacity one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changes returns the signals of a queue.
func (r *reports) changes(queue string) signals {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.signalsOf(queue)
}

// note notes a decided row.
func (r *reports) note(row *plan.Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signal(row.Queue, r.book.Note(row))
}

// resume notes a row of an earlier life of the bridge.
func (r *reports) resume(row *plan.Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signal(row.Queue, r.book.Resume(row))
}

// forget forgets a row.
func (r *reports) forget(row *plan.Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.book.Forget(row)
}

// forgetQuiet forgets a row and reports whether it could: not while a check-in that has no answer yet
// carries a report of it, nor while an acknowledgement waits for a step.
func (r *reports) forgetQuiet(row *plan.Row) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.book.Carried(row) || r.book.Acknowledged(row.Bundle) {
		return false
	}
	r.book.Forget(row)
	return true
}

// checkIn makes the next check-in of a queue.
func (r *reports) checkIn(queue, workerID string, now time.Time) report.CheckIn {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := r.book.CheckIn(queue, workerID, now)
	r.signal(queue, in.Next)
	return in
}

// pending is [report.Book.Pending].
func (r *reports) pending(queue string, now time.Time) (most report.Urgency, blocked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.Pending(queue, now)
}

// reportsLate is [report.Book.ReportsLate].
func (r *reports) reportsLate(queue string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.ReportsLate(queue, now)
}

// carried is [report.Book.Carried].
func (r *reports) carried(row *plan.Row) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.Carried(row)
}

// noteAnswer notes the answer to a check-in. It returns the bundles that the check-in gave back.
func (r *reports) noteAnswer(queue string, number int64, messages []codalab.Message, now time.Time) (restaged []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.book.Acknowledge(messages)
	return r.book.Applied(queue, number, now)
}

// refused is [report.Book.Refused].
func (r *reports) refused(queue string, number int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.Refused(queue, number)
}

// doubt is [report.Book.Doubt].
func (r *reports) doubt(queue string, number int64, now time.Time) (verdicts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.Doubt(queue, number, now)
}

// settle notes the messages on which a step has decided.
func (r *reports) settle(news []*bundleNews) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range news {
		r.book.Settle(n.bundle, n.Messages)
	}
}

// unproven is [report.Book.Unproven].
func (r *reports) unproven(queue string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.Unproven(queue)
}

// prove passes on what the server shows of a bundle.
func (r *reports) prove(queue, bundle string, shown codalab.Standing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.book.Prove(queue, bundle, shown) {
		r.signal(queue, report.Urgent)
	}
}

// hurry wakes the check-ins of all queues. With announce they are sent even if no run has something to report.
func (r *reports) hurry(announce bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for queue, s := range r.signals {
		if announce {
			r.book.Announce(queue)
		}
		signal(s.urgent)
	}
}
