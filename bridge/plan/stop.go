package plan

import (
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// repeatCancel is the least time between two scancels for a job.
const repeatCancel = 10 * time.Second

// stopping: the job has to end. An attempt that has begun is cancelled, and its results are kept. An
// attempt that has not begun is over once it is fenced: its verdict waits neither for scancel nor for
// Slurm, and cancelLeftJob cancels its job. But if its records are gone it may have begun before; the verdict
// then waits for the end of the job.
func (d *decision) stopping() {
	d.applyUnwantedSubmission()
	d.applySlurm()
	if d.concludedByWorker() {
		return
	}
	d.cancel()
	d.stopMember()
	gone := !d.row.NoJobSince.IsZero()
	switch {
	case d.row.Begun != nil:
		if gone && d.diskSettled() && d.slurmStateKnown() || d.leftByRequeuedPack() {
			d.conclude(*d.row.StopVerdict)
		}
	case !d.row.Fenced:
		d.fence()
	case d.row.RecordsGoneSince.IsZero(), gone && d.slurmStateKnown(), d.waitsInPack(): // without records only Slurm can tell that it is over
		d.endUnbegun(*d.row.StopVerdict, "stopped before it began: "+d.row.StopVerdict.Failure)
	}
}

// enterStopping begins to stop a row that has, or may have, a job.
func (d *decision) enterStopping() { d.enter(Stopping, "being stopped: "+d.row.StopVerdict.Failure) }

// endUnsubmitted ends a row that is to be stopped and has no job.
func (d *decision) endUnsubmitted() {
	d.endUnbegun(*d.row.StopVerdict, "stopped before it was submitted: "+d.row.StopVerdict.Failure)
}

// fence wants the attempt fenced, so that it can never begin.
func (d *decision) fence() { d.wantUnlessFailed(Fence, d.fencingFailure()) }

// fencingFailure returns the failure of the last fencing of the attempt, if it is in this news; else "".
// Callers retry a failed fencing before they ask again for the evidence that led to it.
func (d *decision) fencingFailure() string {
	if c := d.news.Fenced; c != nil && c.Attempt == d.row.Attempt.Number {
		return c.Failure
	}
	return ""
}

// applyUnwantedSubmission applies the outcome of sbatch for an attempt that is not wanted any more.
func (d *decision) applyUnwantedSubmission() {
	if d.row.Shared {
		if d.news.Submission != nil {
			d.applyUnwantedPlace(*d.news.Submission)
		}
		return
	}
	s := d.news.Submitted
	switch {
	case s == nil || s.Attempt != d.row.Attempt.Number || d.row.Job.ID != 0:
	case s.Job != 0:
		d.row.Job.ID = s.Job
	case s.Refused && d.row.SbatchCount <= 1:
		d.row.NoJobSince = d.now // no job was ever made
	}
}

// cancelLeftJob cancels the job of an attempt that was over before it began. A snapshot shows later that the job
// has ended, or that there is none.
func (d *decision) cancelLeftJob() {
	if !d.row.leavesJob() {
		return
	}
	d.applyUnwantedSubmission()
	if s := d.news.Observation; s != nil {
		job, ok := d.jobOfAttempt(s.Jobs)
		d.noteRevoked(ok && job.State == sbatch.StateRevoked)
		switch {
		case ok && !job.State.Ended() && !d.givenUpAsRevoked():
			d.row.Job = job
		case ok, s.Asked.After(d.row.SubmittedAt.Add(d.policy.SubmitGrace)) && !d.mayBeMade():
			d.row.NoJobSince = d.now
		}
	}
	d.cancel()
}

// stopMember wants the worker of a pack to end the attempt, and repeats it while the attempt has not ended.
func (d *decision) stopMember() {
	r := &d.row
	if !r.Pack || r.Begun == nil || r.Exit != nil || !r.NoJobSince.IsZero() {
		return
	}
	if told := d.news.Stopped; told != nil && told.Attempt == r.Attempt.Number {
		r.CancelledAt = d.now
		if told.Failure != "" {
			r.Reason = "its worker cannot be told to end it, and is told again: " + told.Failure
		}
	}
	if d.now.Sub(r.CancelledAt) >= repeatCancel {
		d.wantEffect(StopMember)
		return
	}
	d.decideBy(r.CancelledAt.Add(repeatCancel))
}

// cancel wants scancel for a job that has to end, and repeats it while snapshots show the job alive.
func (d *decision) cancel() {
	if c := d.news.Cancelled; c != nil {
		d.row.CancelledAt = d.now
		if c.Failure != "" && d.row.Phase == Stopping {
			d.row.Reason = "scancel failed, and runs again: " + c.Failure
		}
	}
	if d.row.CancelsJob() && d.now.Sub(d.row.CancelledAt) >= repeatCancel {
		d.wantEffect(Cancel)
	}
}
