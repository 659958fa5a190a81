package bridge

import (
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// refreshEvery is how long a report of a run that has not ended stays good. CodaLab's own
// server takes a worker for lost that has not reported a run for a minute
// (codalab/server/bundle_manager.py: _bring_offline_stuck_running_bundles).
const refreshEvery = 20 * time.Second

// reports is what the check-ins of one queue have reported. The view's lock guards it.
// The package comment has the rules ("Reports").
type reports struct {
	// number is the number of the last check-in.
	number int64
	// last is the last report of each run.
	last map[string]*report
	// asked is the bundle about which Prove asked the server last.
	asked string
	// urgent holds a token when a run has entered another state of CodaLab's, other when
	// something else is worth a report.
	urgent, other chan struct{}
}

// report is the last report of a run.
type report struct {
	// row is the row as reported, at is when; zero if the report may be lost.
	row *plan.Row
	at  time.Time
	// carrier is the number of the check-in that carries the report; 0 once that check-in was
	// answered or failed, or the server has shown that it has applied the report.
	carrier int64
	// provable is set if the server shows the run differently until it has applied the report.
	provable bool
}

func newReports() *reports {
	return &reports{last: map[string]*report{}, urgent: make(chan struct{}, 1), other: make(chan struct{}, 1)}
}

// signal puts a token into a channel of capacity one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// resume notes a row of an earlier life of the bridge, which may have reported it. A verdict
// counts as reported: package plan asks the server before it wants another report.
func (r *reports) resume(row *plan.Row) { r.last[row.Bundle] = &report{row: row} }

// note signals that a row is worth a report, if it is. old is nil for a new row.
func (r *reports) note(old, row *plan.Row) {
	switch {
	case !worthReporting(old, row):
	case old == nil || old.State() != row.State():
		signal(r.urgent)
	default:
		signal(r.other)
	}
}

// worthReporting reports whether the change from old to row calls for a report. New usage
// figures do not: they wait until the last report is old.
func worthReporting(old, row *plan.Row) bool {
	switch {
	case !row.Reported() || old == row:
		return false
	case old == nil:
		return true
	case row.Phase == plan.Finalizing:
		return old.Phase != plan.Finalizing || old.ReportCount != row.ReportCount
	}
	return !old.Same(*row) || old.Progress != row.Progress
}

// due reports whether a row must be reported now.
func (r *reports) due(row *plan.Row, now time.Time) bool {
	last := r.last[row.Bundle]
	switch {
	case !row.Reported():
		return false
	case last == nil:
		return true
	case worthReporting(last.row, row):
		return true
	}
	return row.Phase != plan.Finalizing && (last.at.IsZero() || now.Sub(last.at) >= refreshEvery)
}

// carry notes that the check-in of that number reports a row.
func (r *reports) carry(row *plan.Row, number int64, now time.Time) {
	last := r.last[row.Bundle]
	provable := last == nil // until then the server shows what the claim said
	if last != nil && !last.at.IsZero() {
		provable = last.row.State() != row.State() || last.row.RunStatus() != row.RunStatus()
	}
	r.last[row.Bundle] = &report{row: row, at: now, carrier: number, provable: provable}
}

// CheckIn makes the next check-in of a queue's identity, and returns its number. The caller
// passes the number to Answered or Unanswered, once.
func (b *Bridge) CheckIn(q plan.Queue) (codalab.CheckIn, int64) {
	runs, number := b.view.report(q.Name, b.Identity(q.Name), b.Now())
	offer := b.view.offer(q.Name)
	in := codalab.CheckIn{
		Tag: q.Tag, TagExclusive: !q.Default, Hostname: b.Hostname, Runs: runs,
		CPUs: offer.CPUs, GPUs: offer.GPUs, MemoryBytes: offer.Memory, FreeDiskBytes: b.view.freeDisk(),
		Dependencies: [][2]string{}, ExitAfterNumRuns: codalab.UnlimitedRuns,
		SharedFileSystem: b.SharedDisk,
	}
	if q.Group != "" {
		in.GroupName = &q.Group
	}
	if b.view.low.Load() { // the server gives no bundle to an identity that offers nothing
		in.CPUs, in.FreeDiskBytes, in.ExitAfterNumRuns = 0, 0, 0
	}
	return in, number
}

// report returns the runs that the next check-in reports, in the order of their
// bundles, and its number.
func (v *view) report(queue, identity string, now time.Time) ([]codalab.Run, int64) {
	v.mu.Lock()
	r := v.reportsOf(queue)
	r.number++
	number := r.number
	var rows []*plan.Row
	for bundle, row := range v.rows {
		if row.Queue != queue || v.acknowledged[bundle] > 0 || !r.due(row, now) || r.carried(bundle) {
			continue
		}
		r.carry(row, number, now)
		rows = append(rows, row)
	}
	v.mu.Unlock()
	slices.SortFunc(rows, func(a, b *plan.Row) int { return strings.Compare(a.Bundle, b.Bundle) })
	runs := make([]codalab.Run, len(rows))
	for i, row := range rows {
		runs[i] = row.Report(identity)
	}
	return runs, number
}

// carried reports whether an unanswered check-in carries the last report of a run.
func (r *reports) carried(bundle string) bool {
	last := r.last[bundle]
	return last != nil && last.carrier != 0
}

// carried reports whether an unanswered check-in carries the last report of a row.
func (v *view) carried(row plan.Row) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.reportsOf(row.Queue).carried(row.Bundle)
}

// pending counts the rows of a queue that have something to report. The next check-in can
// report the ready ones. The blocked ones wait for the answer to the check-in that reported
// them last.
func (v *view) pending(queue string, now time.Time) (ready, blocked int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.reportsOf(queue)
	for bundle, row := range v.rows {
		switch {
		case row.Queue != queue || v.acknowledged[bundle] > 0:
		case r.carried(bundle):
			if worthReporting(r.last[bundle].row, row) {
				blocked++
			}
		case r.due(row, now):
			ready++
		}
	}
	return ready, blocked
}

// Answered notes the answer to a check-in: the server has applied its reports, and its messages
// are news. From now on no check-in reports a run that one of the messages acknowledges.
func (b *Bridge) Answered(q plan.Queue, number int64, messages []codalab.Message) {
	b.view.acknowledge(messages)
	b.view.applied(q.Name, number)
	if len(messages) > 0 {
		b.inbox.deliver(q.Name, messages)
	}
}

// Unanswered notes that a check-in got no answer. The server may have applied its reports, or
// may do so later.
func (b *Bridge) Unanswered(q plan.Queue, number int64) {
	for _, bundle := range b.view.doubt(q.Name, number) {
		b.inbox.put(bundle, func(n *plan.News) { n.Unanswered = true })
	}
}

// applied notes that the server has applied all reports of a check-in.
func (v *view) applied(queue string, number int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, last := range v.reportsOf(queue).last {
		if last.carrier == number {
			last.carrier = 0
		}
	}
}

// doubt notes that the reports of a check-in may be lost. It returns the bundles whose verdicts
// it reported.
func (v *view) doubt(queue string, number int64) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var verdicts []string
	for bundle, last := range v.reportsOf(queue).last {
		if last.carrier != number {
			continue
		}
		last.carrier, last.at = 0, time.Time{}
		if last.row.Phase == plan.Finalizing {
			verdicts = append(verdicts, bundle)
		}
	}
	slices.Sort(verdicts)
	return verdicts
}

// acknowledge keeps the runs that messages acknowledge out of check-ins, until a step has
// decided their rows.
func (v *view) acknowledge(messages []codalab.Message) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range messages {
		if m.Type == codalab.MessageMarkFinalized {
			v.acknowledged[m.UUID]++
		}
	}
}

// decided ends what acknowledge began, for the messages that a step has applied.
func (v *view) decided(in *arrivals) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, n := range in.news {
		for _, m := range n.Messages {
			if m.Type != codalab.MessageMarkFinalized {
				continue
			}
			if v.acknowledged[n.bundle]--; v.acknowledged[n.bundle] <= 0 {
				delete(v.acknowledged, n.bundle)
			}
		}
	}
}
