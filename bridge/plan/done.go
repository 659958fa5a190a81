package plan

import (
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// endReporting ends the reporting: the server has acknowledged the verdict, or no longer has the bundle. The
// results stay for a while, because the server may offer the bundle again or lose its end.
func (d *decision) endReporting(reason string) {
	d.enter(Done, reason)
	d.row.KeepUntil = d.now.Add(d.policy.KeepAfterAck)
	d.row.DueAt = d.nextCheck()
}

// firstCheck is the time from the acknowledgement to the bridge's first question whether the bundle is
// still at its end. Each later question comes after checkFactor times as long.
const (
	firstCheck  = 15 * time.Second
	checkFactor = 8
)

// nextCheck returns the time of the bridge's next question. The last one comes right before the files may
// be removed.
func (d *decision) nextCheck() time.Time {
	after := firstCheck
	for after < d.policy.KeepAfterAck && !d.row.PhaseSince.Add(after).After(d.now) {
		after *= checkFactor
	}
	if next := d.row.PhaseSince.Add(after); next.After(d.now) && next.Before(d.row.KeepUntil) {
		return next
	}
	return d.row.KeepUntil
}

// done: the bridge removes the files after a while. Until then it asks the server several times for the
// bundle's state. A report that the server applied late, or an old copy of its database, brings the
// bundle back, and only the bridge can bring it to its end again. CodaLab's own server may also show a
// failed run as ready.
func (d *decision) done() {
	if d.row.Dropped || d.row.Releasing {
		d.release()
		return
	}
	d.cancelLeftJob()
	switch c := d.news.Confirmed; {
	case c == nil:
		if !d.waiting() {
			d.wantEffect(Confirm)
		}
	case d.uploadFailed(*c) && d.askedSince(*c):
		d.collectAgain(c.UploadFailure)
	case c.Failure == "" && c.State == codalab.StateWorkerOffline && d.askedSince(*c):
		d.reportEndAgain()
	case c.Failure == "" && c.State == codalab.StateReady && d.askedSince(*c) && d.mayBeMisread():
		d.finalize("the server takes a run that failed for ready: the verdict is reported again")
	case unsettled(*c):
		d.row.FailedTries++
		d.row.DueAt = d.now.Add(pauseAfter(d.row.FailedTries))
	case d.now.Before(d.row.KeepUntil):
		d.row.FailedTries = 0
		d.row.DueAt = d.nextCheck()
	case d.row.leavesJob(): // a snapshot later shows the job's end
		d.row.DueAt = d.now.Add(firstCheck)
	default:
		d.release()
	}
}

// reportEndAgain reports the end of a bundle that became worker_offline after its acknowledgement. The
// server may have lost the results too, so the bridge collects them again if there are any.
func (d *decision) reportEndAgain() {
	const reason = "the server has lost the bundle's end (worker_offline)"
	if !d.row.HasFiles() || d.row.Uncollected {
		d.finalize(reason + ": the verdict is reported again")
		return
	}
	d.enter(Collecting, reason+": the results are collected again")
}

// mayBeMisread reports whether the bridge may report the end again to a server that shows a failed run as
// ready. CodaLab's own server shows a reported end before it has written the exit code
// (codalab/model/bundle_model.py: increment_user_time_used commits the transaction of bundle_checkin), and
// transition_bundle_finished may read the bundle then. After mostReports reports the bridge gives up.
func (d *decision) mayBeMisread() bool {
	v := d.row.Verdict
	failed := v != nil && (v.Failure != "" || v.ExitCode != nil && *v.ExitCode != 0)
	return failed && d.row.ReportCount < mostReports
}

const mostReports = 50

// unsettled reports whether the bridge has to ask soon again about a bundle that the server has
// acknowledged: the server does not answer, has not applied a report yet, or has staged the bundle again
// and will offer it to a bridge that must still know its end. A final refusal would only be repeated.
func unsettled(c Confirmation) bool {
	if c.Failure != "" {
		return !c.Final && !c.Gone
	}
	return withWorker(c.State) ||
		c.State == codalab.StateStaged || c.State == codalab.StateStarting || c.State == codalab.StateFinalizing
}

// release removes the bundle's files, and then its row.
func (d *decision) release() {
	switch rel := d.news.Released; {
	case d.waiting():
	case rel == nil:
		d.row.Releasing = true
		d.wantEffect(Release)
	case rel.Failure != "":
		d.tryLater(rel.Failure)
	default:
		d.wantEffect(Forget)
	}
}
