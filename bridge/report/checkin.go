package report

import (
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// RefreshEvery is the age at which a report of a run that has not ended is repeated. CodaLab's own server takes
// a worker for lost that has not reported a run for a minute (codalab/server/bundle_manager.py:
// _bring_offline_stuck_running_bundles).
const RefreshEvery = 20 * time.Second

// lateReport is the age of a report at which the bridge asks for no more bundles: the server is too
// slow for the live runs that there are.
const lateReport = 2 * RefreshEvery

// CheckIn is the part of a check-in that reports runs.
type CheckIn struct {
	// Number identifies the check-in in its queue.
	Number  int64
	Reports []codalab.RunReport
	// Next is the urgency of the next check-in, for the reports that found no room.
	Next Urgency
}

// unansweredCheckIn is an unanswered check-in.
type unansweredCheckIn struct {
	at    time.Time
	bytes int // of its runs
	// full is set if it had no room for all that had to be reported.
	full    bool
	reports []carriedReport
}

// carriedReport is a run's report, and the report before; nil for none.
type carriedReport struct{ report, before *report }

// CheckIn makes the next check-in of a queue. The caller calls Applied, Doubt or Refused with
// its number, once.
func (b *Book) CheckIn(queue, workerID string, now time.Time) CheckIn {
	q := b.of(queue)
	q.number++
	due := b.due(q, now)
	due.sort()
	old := len(due.old)
	rows, reports, bytes := due.take(workerID, q.size.most, q.oldFirst)
	q.oldFirst = old > 0 && len(due.old) == old
	in := &unansweredCheckIn{at: now, bytes: bytes, full: len(due.verdicts)+len(due.states)+len(due.old) > 0}
	for i, row := range rows {
		in.reports = append(in.reports, q.carry(row, reports[i].RunStatus, now))
	}
	q.unanswered[q.number], q.changed = in, false
	next := None
	switch {
	case in.full:
		next = Urgent
	case len(due.words) > 0:
		next = Words
	}
	return CheckIn{Number: q.number, Reports: reports, Next: next}
}

// carry notes that the newest check-in reports a row with a run status.
func (q *queue) carry(row *plan.Row, status string, now time.Time) carriedReport {
	r := q.runs[row.Bundle]
	before := r.last
	provable := before == nil // until then the server shows what the claim said
	if before != nil {
		q.unlist(before)
		if !before.lost {
			provable = before.row.State() != row.State() || before.status != status
		}
	}
	last := &report{row: row, status: status, at: now, waits: now, carrier: q.number, provable: provable}
	if row.Phase != plan.Finalizing {
		last.place = q.aging.PushBack(last)
	}
	r.last = last
	delete(q.unreported, row.Bundle)
	return carriedReport{last, before}
}

// ReportsLate reports whether the last report of a live run is so old that the server must get no more runs.
func (b *Book) ReportsLate(queue string, now time.Time) bool {
	oldest := b.of(queue).aging.Front()
	return oldest != nil && now.Sub(oldest.Value.(*report).at) >= lateReport //nolint:forcetypeassert // aging has nothing else
}

// Pending returns the greatest urgency of a queue's reports, and whether a change waits for the answer to a
// check-in. A new state that waits for the newest check-in without a proof is urgent, too: our server answers
// an older check-in when a newer one comes.
func (b *Book) Pending(queue string, now time.Time) (most Urgency, blocked bool) {
	q := b.of(queue)
	d := b.due(q, now)
	switch {
	case q.changed, d.stuck > 0, len(d.verdicts)+len(d.states) > 0:
		most = Urgent
	case len(d.old) > 0:
		most = Old
	case len(d.words) > 0:
		most = Words
	}
	return most, d.blocked > 0
}

// Applied notes that a check-in was answered: the server has applied all of its reports. It returns the
// bundles that they gave back.
func (b *Book) Applied(queue string, number int64, now time.Time) (restaged []string) {
	q := b.of(queue)
	in := q.take(number)
	q.size.ended(in, now, true)
	for _, c := range in.reports {
		if c.report.carrier == number {
			c.report.carrier = 0
		}
		if row := c.report.row; row.GivesBack() {
			restaged = append(restaged, row.Bundle)
		}
	}
	return restaged
}

// Doubt notes that a check-in failed, so that its reports may be lost. It returns the bundles whose verdicts
// it reported.
func (b *Book) Doubt(queue string, number int64, now time.Time) (verdicts []string) {
	q := b.of(queue)
	in := q.take(number)
	q.size.ended(in, now, false)
	for _, c := range in.reports {
		last := c.report
		if last.carrier != number {
			continue
		}
		last.carrier, last.lost = 0, true
		switch before := c.before; {
		case before == nil:
			last.waits = time.Time{}
		case !before.lost: // else it would go before others again and again, while the answers are lost
			last.waits = before.at
		}
		q.unlist(last)
		q.reindex(last.row.Bundle)
		if last.row.Phase == plan.Finalizing {
			verdicts = append(verdicts, last.row.Bundle)
		}
	}
	slices.Sort(verdicts)
	return verdicts
}

// Refused notes that the server refused a check-in as too large, without having read it: the
// reports before are the last ones again. False means that there is no smaller one; then the caller calls
// Doubt.
func (b *Book) Refused(queue string, number int64) bool {
	q := b.of(queue)
	in := q.unanswered[number]
	if in == nil || len(in.reports) < 2 {
		return false
	}
	q.size.refused(q.take(number))
	for _, c := range in.reports {
		bundle := c.report.row.Bundle
		r := q.runs[bundle]
		if r == nil || r.last != c.report {
			continue
		}
		q.unlist(c.report)
		r.last = c.before
		q.reindex(bundle)
	}
	return true
}

// take takes a check-in out of the unanswered ones. One whose answer comes twice has no runs the
// second time.
func (q *queue) take(number int64) *unansweredCheckIn {
	in := q.unanswered[number]
	delete(q.unanswered, number)
	if in == nil {
		return &unansweredCheckIn{}
	}
	return in
}

// reindex indexes a bundle's run, if there is one.
func (q *queue) reindex(bundle string) {
	if r := q.runs[bundle]; r != nil {
		q.index(r)
	}
}
