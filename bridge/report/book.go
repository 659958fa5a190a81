package report

import (
	"container/list"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// Urgency is the urgency of a report.
type Urgency int

// The urgencies, the least first.
const (
	None Urgency = iota
	// Words is a change that can wait for seconds, such as a new sentence.
	Words
	// Old is a report that has to be repeated.
	Old
	// Urgent is a run's new state, a verdict, or a change of the worker itself.
	Urgent
)

// Book has the last reports of a bridge's runs, by queue: each queue is a worker to the server, which checks in by
// itself. A Book is not safe for concurrent use. It keeps the rows that it is given, which nobody changes.
type Book struct {
	queues map[string]*queue
	// acknowledged counts, for each bundle, the acknowledgements that no decision has applied yet.
	acknowledged map[string]int
}

// NewBook returns an empty book.
func NewBook() *Book { return &Book{queues: map[string]*queue{}, acknowledged: map[string]int{}} }

// queue has the reports of one queue's check-ins.
type queue struct {
	// number is the number of the last check-in. unanswered has those without an answer.
	number     int64
	unanswered map[int64]*unansweredCheckIn
	size       size
	runs       map[string]*run
	// unreported names the runs that have something new to report, or whose last report may be lost.
	// aging has the last reports of the other live runs, the oldest first.
	unreported map[string]struct{}
	aging      *list.List // of *report
	// compared is the bundle that Prove compared last.
	compared string
	// changed is set if the worker itself has something to tell.
	changed bool
	// oldFirst is set if verdicts or new states have left the last check-in no room for an old report.
	oldFirst bool
}

// run is a run in a book.
type run struct {
	row  *plan.Row // as last decided
	last *report   // its last report; nil for none
}

// report is the last report of a run.
type report struct {
	// row is the row as reported at that time.
	row *plan.Row
	at  time.Time
	// lost is set if the report may be lost.
	lost bool
	// waits is the time since which the run waits for its next report: at or, for the first report in a row that may be lost, the
	// time of the one before; zero if there was none.
	waits time.Time
	// status is the run status of a report that a check-in has carried.
	status string
	// carrier is the number of the check-in that carries the report; 0 once that check-in was
	// answered or failed, or the server has shown that it has applied the report.
	carrier int64
	// provable is set if the server shows the run differently until it has applied the report.
	provable bool
	// place is the report's place in aging; nil if it has none.
	place *list.Element
}

func (b *Book) of(name string) *queue {
	q := b.queues[name]
	if q == nil {
		q = &queue{
			unanswered: map[int64]*unansweredCheckIn{}, size: size{most: MostBytes, ceiling: MostBytes},
			runs: map[string]*run{}, unreported: map[string]struct{}{}, aging: list.New(),
		}
		b.queues[name] = q
	}
	return q
}

// Note notes a decided row, and returns how urgent its report is.
func (b *Book) Note(row *plan.Row) Urgency {
	q := b.of(row.Queue)
	r := q.runs[row.Bundle]
	if r == nil {
		r = &run{}
		q.runs[row.Bundle] = r
	}
	old := r.row
	r.row = row
	q.index(r)
	switch {
	case !worthReporting(old, row):
		return None
	case old == nil || old.State() != row.State():
		return Urgent
	}
	return Words
}

// Resume notes a row of an earlier life of the bridge, which may have reported it. A verdict counts as
// reported: package plan asks the server before it wants another report.
func (b *Book) Resume(row *plan.Row) Urgency {
	b.of(row.Queue).runs[row.Bundle] = &run{last: &report{row: row, lost: true}}
	return b.Note(row)
}

// Forget forgets a row.
func (b *Book) Forget(row *plan.Row) {
	q := b.of(row.Queue)
	if r := q.runs[row.Bundle]; r != nil && r.last != nil {
		q.unlist(r.last)
	}
	delete(q.runs, row.Bundle)
	delete(q.unreported, row.Bundle)
}

// Announce notes that a queue's worker has something to tell, which is urgent.
func (b *Book) Announce(queue string) { b.of(queue).changed = true }

// Carried reports whether an unanswered check-in carries the last report of a row.
func (b *Book) Carried(row *plan.Row) bool {
	r := b.of(row.Queue).runs[row.Bundle]
	return r != nil && r.last != nil && r.last.carrier != 0
}

// Acknowledged reports whether an acknowledgement of a bundle waits for a decision.
func (b *Book) Acknowledged(bundle string) bool { return b.acknowledged[bundle] > 0 }

// Acknowledge keeps the runs that messages acknowledge out of check-ins, until Settle has been called for
// each of these messages.
func (b *Book) Acknowledge(messages []codalab.Message) {
	for _, m := range messages {
		if m.Type == codalab.MessageMarkFinalized {
			b.acknowledged[m.UUID]++
		}
	}
}

// Settle notes that messages for a bundle have been decided on.
func (b *Book) Settle(bundle string, messages []codalab.Message) {
	for _, m := range messages {
		if m.Type != codalab.MessageMarkFinalized {
			continue
		}
		if b.acknowledged[bundle]--; b.acknowledged[bundle] <= 0 {
			delete(b.acknowledged, bundle)
		}
	}
}

// index puts a run into unreported or takes it out, and takes the last report of a run that is not live
// any more out of aging.
func (q *queue) index(r *run) {
	last, live := r.last, r.row.Reportable() && r.row.Phase != plan.Finalizing
	if last != nil && !live {
		q.unlist(last)
	}
	if r.row.Reportable() && (last == nil || worthReporting(last.row, r.row) || live && last.place == nil) {
		q.unreported[r.row.Bundle] = struct{}{}
	} else {
		delete(q.unreported, r.row.Bundle)
	}
}

// unlist takes a report out of aging.
func (q *queue) unlist(last *report) {
	if last.place != nil {
		q.aging.Remove(last.place)
		last.place = nil
	}
}

// worthReporting reports whether the change from old to row calls for a report. New usage
// figures do not: they wait until the last report is old.
func worthReporting(old, row *plan.Row) bool {
	switch {
	case !row.Reportable() || old == row:
		return false
	case old == nil || !old.Reportable():
		return true
	case row.Phase == plan.Finalizing:
		return old.Phase != plan.Finalizing || old.ReportCount != row.ReportCount
	}
	return !old.Same(*row) || old.Progress != row.Progress
}
