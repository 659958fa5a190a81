package bridge

import (
	"container/list"
	"errors"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// refreshEvery is how long a report of a run that has not ended stays good. CodaLab's own
// server takes a worker for lost that has not reported a run for a minute
// (codalab/server/bundle_manager.py: _bring_offline_stuck_running_bundles).
const refreshEvery = 20 * time.Second

// lateReport is the age of a report at which the bridge asks for no more bundles: the server is too
// slow for the live runs that there are.
const lateReport = 2 * refreshEvery

// reports is what the check-ins of one queue have reported. The view's lock guards it.
// The package comment has the rules ("Reports").
type reports struct {
	// number is the number of the last check-in, and sent holds the unanswered ones.
	number int64
	sent   map[int64]*sentCheckIn
	size   size
	// last is the last report of each run.
	last map[string]*report
	// news names the runs that have something new to report, or whose last report may be lost.
	// aging has the last reports of the other live runs, the oldest first.
	news  map[string]struct{}
	aging *list.List // of *report
	// asked is the bundle about which Prove asked the server last.
	asked string
	// urgent holds a token when a run has entered another state of CodaLab's, or when the last
	// check-in had no room for all that must be reported; other when something else is worth a
	// report.
	urgent, other chan struct{}
	// changed is set if the identity itself has something to tell.
	changed bool
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
	// place is the report's place in reports.aging; nil if it has none.
	place *list.Element
}

// sentCheckIn is an unanswered check-in.
type sentCheckIn struct {
	at    time.Time
	bytes int // of its runs
	// full is set if it had no room for all that had to be reported.
	full bool
	runs []carriedRun
}

// carriedRun is a run's report, and the report before; nil for none.
type carriedRun struct{ report, before *report }

func newReports() *reports {
	return &reports{
		sent: map[int64]*sentCheckIn{}, size: size{most: mostBytes, ceiling: mostBytes},
		last: map[string]*report{}, news: map[string]struct{}{}, aging: list.New(),
		urgent: make(chan struct{}, 1), other: make(chan struct{}, 1),
	}
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

// note notes a changed row, and signals if it is worth a report. old is nil for a new row.
func (r *reports) note(old, row *plan.Row) {
	r.index(row)
	switch {
	case !worthReporting(old, row):
	case old == nil || old.State() != row.State():
		signal(r.urgent)
	default:
		signal(r.other)
	}
}

// index puts a row into news or takes it out, and takes the last report of a run that is not live
// any more out of aging.
func (r *reports) index(row *plan.Row) {
	last, live := r.last[row.Bundle], row.Reported() && row.Phase != plan.Finalizing
	if last != nil && !live {
		r.unlist(last)
	}
	if row.Reported() && (last == nil || worthReporting(last.row, row) || live && last.place == nil) {
		r.news[row.Bundle] = struct{}{}
	} else {
		delete(r.news, row.Bundle)
	}
}

// unlist takes a report out of aging.
func (r *reports) unlist(last *report) {
	if last.place != nil {
		r.aging.Remove(last.place)
		last.place = nil
	}
}

// forget forgets a run.
func (r *reports) forget(bundle string) {
	if last := r.last[bundle]; last != nil {
		r.unlist(last)
	}
	delete(r.last, bundle)
	delete(r.news, bundle)
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

// carry notes that the check-in of that number reports a row.
func (r *reports) carry(row *plan.Row, number int64, now time.Time) carriedRun {
	before := r.last[row.Bundle]
	provable := before == nil // until then the server shows what the claim said
	if before != nil {
		r.unlist(before)
		if !before.at.IsZero() {
			provable = before.row.State() != row.State() || before.row.RunStatus() != row.RunStatus()
		}
	}
	last := &report{row: row, at: now, carrier: number, provable: provable}
	if row.Phase != plan.Finalizing {
		last.place = r.aging.PushBack(last)
	}
	r.last[row.Bundle] = last
	delete(r.news, row.Bundle)
	return carriedRun{last, before}
}

// CheckIn makes the next check-in of a queue's identity, and returns its number. The caller
// passes the number to Answered or Unanswered, once.
func (b *Bridge) CheckIn(q plan.Queue) (codalab.CheckIn, int64) {
	late := b.view.late(q.Name, b.Now())
	b.beat.late(q.Name, late)
	closed := b.view.closed(late)
	runs, number := b.view.report(q.Name, b.Identity(q.Name), b.Now())
	offer := b.view.offer(q.Name, b.Standalone != nil && b.Standalone.Local)
	in := codalab.CheckIn{
		Tag: q.Tag, TagExclusive: !q.Default, Hostname: b.Hostname, Runs: runs,
		CPUs: offer.CPUs, GPUs: offer.GPUs, MemoryBytes: offer.Memory, FreeDiskBytes: b.view.freeDisk(),
		Dependencies: [][2]string{}, ExitAfterNumRuns: codalab.UnlimitedRuns,
		SharedFileSystem: b.SharedDisk, Instance: b.Policy.Bridge,
	}
	if b.Standalone == nil || !b.Standalone.Local {
		in.Nodes = offeredSizes(q, b.view.nodeSizes(q.Name))
	}
	if group := q.Group; group != "" { // a copy: the whole queue would be copied for the pointer
		in.GroupName = &group
	}
	if b.Standalone != nil && b.Standalone.Remote != "" {
		for i := range in.Runs {
			in.Runs[i].Remote = b.Standalone.Remote
		}
	}
	b.describe(&in)
	if closed != "" { // the server gives no bundle to an identity that offers nothing
		in.CPUs, in.FreeDiskBytes, in.ExitAfterNumRuns, in.Closed = 0, 0, 0, closed
	}
	return in, number
}

// closed returns why the bridge asks for no more bundles of a queue; empty if it does. late is the queue's.
func (v *view) closed(late bool) string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.low == "" && late {
		return "the server is slow to take the reports of the bundles that run there"
	}
	return v.low
}

// report returns the runs that the next check-in reports, and its number.
func (v *view) report(queue, identity string, now time.Time) ([]codalab.Run, int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.reportsOf(queue)
	r.number++
	due := v.due(r, now)
	due.sort(r)
	rows, runs, bytes := due.take(identity, r.size.most)
	in := &sentCheckIn{at: now, bytes: bytes, full: len(due.verdicts)+len(due.states)+len(due.old) > 0}
	for _, row := range rows {
		in.runs = append(in.runs, r.carry(row, r.number, now))
	}
	r.sent[r.number], r.changed = in, false
	switch { // for the next check-in
	case in.full:
		signal(r.urgent)
	case len(due.words) > 0:
		signal(r.other)
	}
	return runs, r.number
}

// late reports whether the last report of a live run is so old that the server must get no more of
// them.
func (v *view) late(queue string, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	oldest := v.reportsOf(queue).aging.Front()
	return oldest != nil && now.Sub(oldest.Value.(*report).at) >= lateReport //nolint:forcetypeassert // aging has nothing else
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

// pending returns below how many held check-ins another one is sent for what a queue has to report,
// 0 if there is nothing; and whether news waits for the answer to a check-in. Another one is also sent,
// once, for a new state that waits for the newest one without a proof: our server answers an older
// check-in when a newer one comes.
func (v *view) pending(queue string, now time.Time) (below int, blocked bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.reportsOf(queue)
	d := v.due(r, now)
	switch {
	case r.changed, d.stuck > 0, len(d.verdicts)+len(d.states) > 0:
		below = mostHeld
	case len(d.old) > 0:
		below = mostHeldByOld
	case len(d.words) > 0:
		below = mostHeldByOther
	}
	return below, d.blocked > 0
}

// Answered notes the answer to a check-in: the server has applied its reports, and its messages
// are news. From now on no check-in reports a run that one of the messages acknowledges.
func (b *Bridge) Answered(q plan.Queue, number int64, messages []codalab.Message) {
	b.view.acknowledge(messages)
	for _, bundle := range b.view.applied(q.Name, number, b.Now()) {
		b.inbox.put(bundle, func(n *plan.News) { n.Restaged = true })
	}
	if len(messages) > 0 {
		b.inbox.deliver(q.Name, messages)
	}
}

// Unanswered notes that a check-in got no answer but an error. The server may have applied its
// reports, or may do so later, unless it refused the check-in as too large. Unanswered reports
// whether it did and the next check-in is smaller.
func (b *Bridge) Unanswered(q plan.Queue, number int64, err error) (smaller bool) {
	var refused *codalab.Error
	if errors.As(err, &refused) && refused.TooLarge() && b.view.refused(q.Name, number) {
		return true
	}
	for _, bundle := range b.view.doubt(q.Name, number, b.Now()) {
		b.inbox.put(bundle, func(n *plan.News) { n.Unanswered = true })
	}
	return false
}

// applied notes that the server has applied all reports of a check-in. It returns the bundles that it
// gave back.
func (v *view) applied(queue string, number int64, now time.Time) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.reportsOf(queue)
	in := r.take(number)
	r.size.ended(in, now, true)
	var restaged []string
	for _, run := range in.runs {
		if run.report.carrier == number {
			run.report.carrier = 0
		}
		if row := run.report.row; row.GivesBack() {
			restaged = append(restaged, row.Bundle)
		}
	}
	return restaged
}

// doubt notes that the reports of a check-in may be lost. It returns the bundles whose verdicts
// it reported.
func (v *view) doubt(queue string, number int64, now time.Time) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.reportsOf(queue)
	in := r.take(number)
	r.size.ended(in, now, false)
	var verdicts []string
	for _, run := range in.runs {
		last := run.report
		if last.carrier != number {
			continue
		}
		last.carrier, last.at = 0, time.Time{}
		r.unlist(last)
		v.index(r, last.row.Bundle)
		if last.row.Phase == plan.Finalizing {
			verdicts = append(verdicts, last.row.Bundle)
		}
	}
	slices.Sort(verdicts)
	return verdicts
}

// refused notes that the server refused a check-in as too large, without having read it: the
// reports before are the last ones again. False means that there is no smaller one.
func (v *view) refused(queue string, number int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.reportsOf(queue)
	in := r.sent[number]
	if in == nil || len(in.runs) < 2 {
		return false
	}
	r.size.refused(r.take(number))
	for _, run := range in.runs {
		bundle := run.report.row.Bundle
		if r.last[bundle] != run.report {
			continue
		}
		r.unlist(run.report)
		if run.before == nil {
			delete(r.last, bundle)
		} else {
			r.last[bundle] = run.before
		}
		v.index(r, bundle)
	}
	return true
}

// take takes a check-in out of the unanswered ones. One whose answer comes twice has no runs the
// second time.
func (r *reports) take(number int64) *sentCheckIn {
	in := r.sent[number]
	delete(r.sent, number)
	if in == nil {
		return &sentCheckIn{}
	}
	return in
}

// index indexes a bundle's row, if it has one.
func (v *view) index(r *reports, bundle string) {
	if row := v.rows[bundle]; row != nil {
		r.index(row)
	}
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
