package plan

import (
	"cmp"
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// queued: Slurm has the job, and no record shows that the attempt began.
func (d *decision) queued() {
	if d.row.Begun != nil {
		d.enter(Running, "the attempt began on "+d.row.Node())
		return
	}
	d.applySlurm()
	if d.news.Turn != nil {
		d.row.Turn = d.news.Turn.Rounded()
	}
	if d.news.Limit != nil {
		d.row.Limit = *d.news.Limit
	}
	d.stopImpossibleJob()
	if d.row.StopVerdict != nil {
		d.enterStopping()
		return
	}
	// A job that has ended may have begun although the disk does not show it yet. Fencing decides:
	// afterwards either the attempt can never begin, or the disk shows its start.
	switch {
	case d.row.Fenced:
		d.endOfUnbegun()
	case d.row.NoJobSince.IsZero():
	case d.fencingFailure() != "" || d.diskSettled() && d.slurmStateKnown():
		d.fence()
	}
}

// running: the attempt has begun.
func (d *decision) running() {
	d.applySlurm()
	if d.concludedByWorker() {
		return
	}
	if d.concludedAsRequeued() {
		return
	}
	if d.row.StopVerdict != nil {
		d.enterStopping()
		return
	}
	d.tellTimeLimit()
	if d.row.Exit == nil && !d.row.NoJobSince.IsZero() && d.diskSettled() && d.slurmStateKnown() {
		d.conclude(d.fromSlurm())
	}
}

// concludedByWorker ends the attempt with its exit record's verdict, if there is a record, and reports
// whether it did. The worker of a terminated job does not know the reason; then the row waits for Slurm's
// state of the ended job.
func (d *decision) concludedByWorker() bool {
	exit := d.row.Exit
	if exit == nil || exit.Terminated && d.row.StopVerdict == nil && !d.terminationKnown() {
		return false
	}
	d.conclude(d.ownVerdict(*exit))
	return true
}

// terminationKnown reports whether it is known why the attempt's job was terminated.
func (d *decision) terminationKnown() bool {
	if d.row.NoJobSince.IsZero() {
		return d.row.Requeued
	}
	return d.slurmStateKnown()
}

// ownVerdict returns the verdict of the attempt's exit record.
func (d *decision) ownVerdict(exit spool.Exit) Verdict {
	v := Verdict{Cause: exit.Cause, Failure: exit.Failure}
	switch state := d.row.Job.State; {
	case !exit.Terminated:
	case d.row.StopVerdict != nil:
		v = *d.row.StopVerdict
	case state.Ended() && state != sbatch.StateCompleted && state != sbatch.StateFailed:
		v = d.fromSlurm()
	case d.row.Requeued:
		v = d.putBack("")
	case state.Ended() && v.Cause == spool.CausePlatform && !d.row.Standalone:
		v.Failure = trimDot(v.Failure) + ", and Slurm shows no reason: somebody signalled the job, or put it back into the queue."
	}
	v.ExitCode = exit.ExitCode
	return v
}

// applySlurm applies the observations of the attempt's job, from Slurm and from its accounting database.
func (d *decision) applySlurm() {
	if a := d.news.Accounting; a != nil && !d.row.NoJobSince.IsZero() {
		switch job, ok := d.jobOfAttempt(a.Jobs); {
		case ok && job.State.Ended():
			if !d.row.Job.State.Ended() { // it may have ended after the records were read
				d.row.NoJobSince = d.now
			}
			d.row.setEnded(job)
		case ok && job.Nodes != "":
			d.row.Job.Nodes = job.Nodes // it had a node, although the database missed its end
		}
		d.row.Requeued = d.row.Requeued || d.row.Begun != nil && d.row.cancelledInRequeue(a.Jobs)
	}
	s := d.news.Observation
	if s == nil {
		return
	}
	job, ok := d.jobOfAttempt(s.Jobs)
	if !d.row.Pack { // a member has a limit of its own in the pack's
		d.row.TimeLimits.note(job)
	}
	d.noteRevoked(ok && job.State == sbatch.StateRevoked)
	switch {
	case ok && !job.State.Ended() && !d.givenUpAsRevoked():
		if job.State != d.row.Job.State && d.recordsLag(job.State) {
			d.wantEffect(ReadRecords)
		}
		d.row.Job, d.row.LastNodes, d.row.NoJobSince = job, cmp.Or(job.Nodes, d.row.LastNodes), time.Time{}
		d.noteRequeued(s.Asked)
	case ok:
		if known := d.row.Job; job.ID == known.ID && job.State == known.State { // from the accounting database
			job.Exit, job.CancelledBy, job.Canceller = cmp.Or(job.Exit, known.Exit), cmp.Or(job.CancelledBy, known.CancelledBy), cmp.Or(job.Canceller, known.Canceller)
		}
		if job.State.Ended() && !d.row.Job.State.Ended() {
			d.row.NoJobSince = time.Time{} // it may have ended after the records were read
		}
		d.row.setEnded(job)
		d.noteEnded(d.row.jobStateReason())
	case s.Job != d.row.Job.ID: // the row got its job from a record after the question; the next answer covers that job
	case s.Asked.After(d.row.SubmittedAt.Add(d.policy.SubmitGrace)) && !d.mayBeMade():
		d.noteEnded("a whole snapshot does not show the job any more")
	}
}

// recordsLag reports whether a live job's state shows that the attempt must have records that the row does
// not have. The worker's ring of the doorbell may be lost.
func (d *decision) recordsLag(state sbatch.State) bool {
	return state == sbatch.StateRunning && d.row.Begun == nil || state == sbatch.StateCompleting && d.row.Exit == nil
}

// noteRevoked notes whether Slurm shows the attempt's job REVOKED: another cluster of the federation has
// started it. If that cluster sees the shared disk, the attempt's records show its start and its end;
// Slurm shows neither.
func (d *decision) noteRevoked(revoked bool) {
	switch {
	case !revoked:
		d.row.RevokedSince = time.Time{}
	case d.row.RevokedSince.IsZero():
		d.row.RevokedSince = d.now
	}
}

const (
	// revokedPatience is the longest time for a revoked job to begin, or to end after a kill.
	revokedPatience = 10 * time.Minute
	// longestRevoked bounds the run of a revoked job without a time limit.
	longestRevoked = 7 * 24 * time.Hour
)

// givenUpAsRevoked reports whether a job has been REVOKED for so long that it counts as ended.
func (d *decision) givenUpAsRevoked() bool {
	if d.row.RevokedSince.IsZero() {
		return false
	}
	since, patience := d.row.RevokedSince, revokedPatience
	if d.row.PhaseSince.After(since) {
		since = d.row.PhaseSince
	}
	if d.row.Begun != nil && d.row.StopVerdict == nil {
		patience += d.longestRevokedRun()
	}
	return d.now.Sub(since) > patience
}

// longestRevokedRun returns the longest run of a revoked job. Its time limit may have been made longer.
func (d *decision) longestRevokedRun() time.Duration {
	limit, now := d.queue.limit(d.row.Resources), d.row.TimeLimits.Now
	switch {
	case limit <= 0:
		return longestRevoked + d.queue.TimeGrace
	case now == sbatch.Unlimited:
		now = longestRevoked
	}
	return max(limit+d.queue.TimeGrace, now)
}

// noteEnded notes that Slurm has no live job for the attempt, and wants the records of its end.
// slurmStateKnown asks the accounting database if the records are not enough.
func (d *decision) noteEnded(reason string) {
	if !d.row.NoJobSince.IsZero() {
		return
	}
	d.row.NoJobSince, d.row.Reason = d.now, reason
	d.wantEffect(ReadRecords)
}

// jobOfAttempt returns the attempt's job among the jobs of its submission name: the job that began it, else
// the submitted job, else any adoptable job.
func (d *decision) jobOfAttempt(jobs []sbatch.Job) (sbatch.Job, bool) {
	id := d.row.Job.ID.String()
	if d.row.Begun != nil && d.row.Begun.Job != "" {
		id = d.row.Begun.Job
	}
	var job sbatch.Job
	ok := false
	for _, j := range jobs {
		if j.ID.String() == id && (!ok || supersedes(j, job)) {
			job, ok = j, true
		}
	}
	if ok {
		return job, true
	}
	if d.row.Begun != nil && d.row.Begun.Job != "" {
		return sbatch.Job{}, false // another job of the name is not the one that began
	}
	return adoptable(&Observation{Jobs: jobs})
}

// slurmStateKnown reports whether the final state of an ended job is known, from the controller or, if the
// controller no longer has it, from the accounting database. The database also has the exit status of a
// job without an exit record. slurmStateKnown waits at most RecordAge for an end that the database missed,
// because the database may show such a job as running forever.
func (d *decision) slurmStateKnown() bool {
	ended := d.row.Job.State.Ended()
	if ended && !d.lacksExitStatus() && !d.lacksCanceller() || !d.policy.Accounting || d.givenUpAsRevoked() {
		return true
	}
	if ended && !d.lacksExitStatus() && !d.launchFailed() && d.news.AccountingFailure != "" {
		return true // only a sentence would name the canceller
	}
	a := d.news.Accounting
	switch {
	case a != nil:
	case (d.row.Exit != nil || ended) && d.now.Sub(d.row.NoJobSince) > d.policy.RecordAge:
		return true // the exit record is enough if the database has been silent for so long
	default:
		d.wantUnlessFailed(QueryAccounting, d.news.AccountingFailure)
		return false
	}
	job, ok := d.jobOfAttempt(a.Jobs)
	switch {
	case job.State.Ended(), d.row.cancelledInRequeue(a.Jobs), d.now.Sub(d.row.NoJobSince) > d.policy.RecordAge:
		return true
	case ok:
		d.tryLater(fmt.Sprintf("accounting shows job %s %s although the queue does not show it", job.ID, job.State))
		return false
	case ended, d.row.Begun != nil: // the database may be behind
		d.tryLater("accounting does not show yet how the job ended")
		return false
	}
	return true
}

// lacksExitStatus reports whether an attempt began and left no exit record, and the exit status of its job
// is not known: squeue does not show it for a job that FAILED.
func (d *decision) lacksExitStatus() bool {
	return d.row.Begun != nil && d.row.Exit == nil && d.row.StopVerdict == nil && d.row.Job.State == sbatch.StateFailed && d.row.Job.Exit == ""
}

// lacksCanceller reports whether the job was cancelled, not by the bridge, and the user who cancelled it is not known:
// squeue does not show it.
func (d *decision) lacksCanceller() bool {
	return d.row.Job.State == sbatch.StateCancelled && d.row.Job.CancelledBy == "" && d.row.StopVerdict == nil && !d.row.Standalone
}

// diskSettled reports whether the disk had its time to show the records from before the job's end, and the
// records were read after that. A worker that may live had the time to write another status record, too.
func (d *decision) diskSettled() bool {
	deadline := d.row.NoJobSince.Add(d.policy.Settle)
	if d.mayLive() {
		deadline = deadline.Add(2 * spool.LongestStatusPause)
	}
	switch {
	case !d.row.RecordsReadAt.Before(deadline):
		return true
	case d.now.Before(deadline):
		d.decideBy(deadline)
	default:
		d.wantUnlessFailed(ReadRecords, d.news.RecordsFailure)
	}
	return false
}
