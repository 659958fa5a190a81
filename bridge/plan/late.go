package plan

import (
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// repeatCancel is the least time between two scancels for a job.
const repeatCancel = 10 * time.Second

// stopping: the job has to end. An attempt that has begun is cancelled, and its results are kept. An
// attempt that has not begun is over once it is fenced: its verdict waits neither for scancel nor for
// Slurm, and endLeftJob ends its job. But if its records are gone it may have begun before; the verdict
// then waits for the end of the job.
func (d *decision) stopping() {
	d.applyLateAnswer()
	d.applySlurm()
	if d.concludedByWorker() {
		return
	}
	d.cancel()
	gone := !d.row.NoJobSince.IsZero()
	switch {
	case d.row.Begun != nil:
		if gone && d.diskSettled() && d.slurmStateKnown() {
			d.conclude(*d.row.StopVerdict)
		}
	case !d.row.Fenced:
		d.fence()
	case d.row.RecordsGoneSince.IsZero(), gone && d.slurmStateKnown(): // without records only Slurm can tell that it is over
		d.endWithoutResults(*d.row.StopVerdict, "stopped before it began: "+d.row.StopVerdict.Failure)
	}
}

// stop begins to stop a row that has, or may have, a job.
func (d *decision) stop() { d.enter(Stopping, "being stopped: "+d.row.StopVerdict.Failure) }

// stopUnsubmitted ends a row that is to be stopped and has no job.
func (d *decision) stopUnsubmitted() {
	d.endWithoutResults(*d.row.StopVerdict, "stopped before it was submitted: "+d.row.StopVerdict.Failure)
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

// applyLateAnswer applies sbatch's answer for an attempt that is not wanted any more.
func (d *decision) applyLateAnswer() {
	s := d.news.Submitted
	switch {
	case s == nil || s.Attempt != d.row.Attempt.Number || d.row.Job.ID != 0:
	case s.Job != 0:
		d.row.Job.ID = s.Job
	case s.Refused && d.row.SbatchCount <= 1:
		d.row.NoJobSince = d.now // no job was ever made
	}
}

// endLeftJob ends the job of an attempt that was over before it began. A snapshot shows later that the job
// has ended, or that there is none.
func (d *decision) endLeftJob() {
	if !d.row.leavesJob() {
		return
	}
	d.applyLateAnswer()
	if s := d.news.Observation; s != nil {
		job, ok := d.jobOfAttempt(s.Jobs)
		d.noteRevoked(ok && job.State == sbatch.StateRevoked)
		switch {
		case ok && !job.State.Ended() && !d.givenUpAsRevoked():
			d.row.Job = job
		case ok, s.Asked.After(d.row.SubmittedAt.Add(d.policy.SubmitGrace)):
			d.row.NoJobSince = d.now
		}
	}
	d.cancel()
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

// collecting: the results go to the server. Until the verdict is reported, an exit record that the disk
// shows late still replaces the verdict from Slurm's state.
func (d *decision) collecting() {
	if d.exitIsNew && d.row.Times.Finalizing.IsZero() {
		v := d.ownVerdict(*d.row.Exit)
		d.row.Verdict = &v
	}
	if d.endedAtServer() {
		return
	}
	if d.news.DataChanged != "" {
		d.row.DataChanged = d.news.DataChanged
	}
	c := d.news.Collected
	if c != nil || d.news.Progress != "" {
		d.row.Progress = d.news.Progress
	}
	switch {
	case c == nil:
		if !d.waiting() {
			d.wantEffect(Collect)
		}
	case c.Failure == "":
		d.row.Uncollected = false
		reason := collectedReason(c.Details)
		if d.row.DataChanged != "" {
			reason = noted(reason, []string{d.row.DataChanged})
		}
		d.finalize(reason)
	case c.Gone:
		d.acknowledged("the server no longer has the bundle: " + c.Failure)
	case c.Final || d.patienceOver(d.policy.CollectPatience):
		d.failUncollected(c.Failure)
		d.row.Uncollected = true
		d.finalize("the results could not be delivered: " + c.Failure)
	default:
		d.tryLater(c.Failure)
		d.wantEffect(Confirm) // the server may have the results already, and refuse them
	}
}

// collectedReason returns the reason of a row whose results are collected.
func collectedReason(what string) string {
	if what == "" {
		return "the results are with the server"
	}
	return "the results are with the server: " + what
}

// endedAtServer ends the reporting if the server shows the bundle at its end, which counts as an
// acknowledgement, or no longer has it. It reports whether it did.
func (d *decision) endedAtServer() bool {
	c := d.news.Confirmed
	switch {
	case c == nil:
		return false
	case c.Gone:
		d.acknowledged("the server no longer has the bundle: " + c.Failure)
	case c.Failure == "" && c.State.Final() && !d.uploadFailed(*c) && d.askedSince(*c):
		d.acknowledged("the server has the result: the bundle is " + string(c.State))
	default:
		return false
	}
	return true
}

// failUncollected turns the verdict into a failure because the results cannot be collected, unless a
// verdict was reported already.
func (d *decision) failUncollected(why string) {
	if d.row.Verdict.Failure != "" || !d.row.Times.Finalizing.IsZero() {
		return
	}
	v := *d.row.Verdict
	v.Cause, v.Failure = spool.CausePlatform, "The results could not be delivered: "+codalab.Sentence(why)
	d.row.Verdict = &v
}

// finalize starts the reporting of the verdict.
func (d *decision) finalize(reason string) {
	d.enter(Finalizing, reason)
	d.row.Times.Finalizing = d.now
	d.row.ReportCount++
	d.row.DueAt = d.now.Add(firstAckPause)
}

// firstAckPause is the time that the server has for its acknowledgement before the bridge's first question.
const firstAckPause = 15 * time.Second

// finalizing: the verdict is reported once, and applyMessages notes the server's acknowledgement. CodaLab's
// own server takes a report that comes after its acknowledgement for a new end of the bundle. So the bridge
// first asks the server: after a pause, after a restart, and if a check-in got no answer. It reports the
// verdict again only if the server shows that it does not have it.
func (d *decision) finalizing() {
	d.endLeftJob()
	c := d.news.Confirmed
	switch {
	case c == nil:
		if !d.waiting() || d.news.Restarted || d.news.Unanswered {
			d.wantEffect(Confirm)
		}
	case d.endedAtServer():
	case c.Failure != "":
		d.tryLater(c.Failure)
	case d.uploadFailed(*c) && d.askedSince(*c):
		d.collectAgain(c.UploadFailure)
	case heldByWorker(c.State) && !c.Carried && d.askedSince(*c):
		d.finalize(fmt.Sprintf("the server has not got the verdict, and has the bundle %s: reported again", c.State))
	default:
		pause := min(max(d.now.Sub(d.row.PhaseSince), firstAckPause), d.policy.LongestAckPause)
		d.row.DueAt = d.now.Add(pause)
	}
}

// askedSince reports whether the bridge sent the question after the row entered its phase. The answer to
// an older question says nothing about the offer, report or acknowledgement that began the phase.
func (d *decision) askedSince(c Confirmation) bool { return !c.Asked.Before(d.row.PhaseSince) }

// heldByWorker reports whether a server that shows this state believes that a worker has the bundle and
// has not reported its end.
func heldByWorker(s codalab.State) bool {
	return s == codalab.StatePreparing || s == codalab.StateRunning || s == codalab.StateWorkerOffline
}

// uploadFailed reports whether the server has thrown away results that the bridge can collect
// again. Results that the bridge has given up are not collected again, because the server would
// refuse them once more.
func (d *decision) uploadFailed(c Confirmation) bool {
	return c.UploadFailure != "" && d.row.Begun != nil && !d.row.Uncollected
}

// collectAgain collects results again that the server has thrown away, and then the verdict. This may
// happen after the acknowledgement: CodaLab's own server may notice late that an earlier upload broke off.
func (d *decision) collectAgain(uploadFailure string) {
	d.enter(Collecting, "the server has thrown the results away, and they are delivered again: "+uploadFailure)
}
