package plan

import (
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// queued: Slurm has the job, and the attempt has not been seen to begin.
func (d *decision) queued() {
	if d.row.Begun != nil {
		d.enter(Running, "the attempt began on "+d.row.Begun.Node)
		return
	}
	d.watch()
	d.neverStarts()
	if d.row.Stop != nil {
		d.enter(Stopping, "to be stopped: "+d.row.Stop.Failure)
		return
	}
	// A job that is over may have begun and the disk not show it yet. Closing
	// the attempt settles it: either it can never begin, or its start shows.
	switch {
	case d.row.Fenced:
		d.concluded(d.fromSlurm())
	case d.row.Ended.IsZero():
	case d.closingFailed() != "" || d.settled() && d.lastWord():
		d.fence()
	}
}

// running: the attempt has begun.
func (d *decision) running() {
	if d.row.Times.Running.IsZero() {
		d.row.Times.Running = d.now
	}
	d.watch()
	if d.ownEnd() {
		return
	}
	if d.row.Stop != nil {
		d.enter(Stopping, "to be stopped: "+d.row.Stop.Failure)
		return
	}
	if d.row.Exit == nil && !d.row.Ended.IsZero() && d.settled() && d.lastWord() {
		d.concluded(d.fromSlurm())
	}
}

// ownEnd takes the attempt's own account of its end for its verdict. A worker
// that was told to stop does not know why; that Slurm says, when the job is
// over.
func (d *decision) ownEnd() bool {
	exit := d.row.Exit
	if exit == nil || exit.Terminated && d.row.Stop == nil && (d.row.Ended.IsZero() || !d.lastWord()) {
		return false
	}
	d.concluded(d.own(*exit))
	return true
}

// own is the verdict of the attempt's own account.
func (d *decision) own(exit spool.Exit) Verdict {
	v := Verdict{Cause: exit.Cause, Failure: exit.Failure}
	switch state := d.row.Job.State; {
	case !exit.Terminated:
	case d.row.Stop != nil:
		v = *d.row.Stop
	case state.Ended() && state != sbatch.StateCompleted && state != sbatch.StateFailed:
		v = d.fromSlurm()
	}
	v.ExitCode = exit.ExitCode
	return v
}

// watch takes in what Slurm shows of the attempt's job.
func (d *decision) watch() {
	if a := d.news.Accounting; a != nil && !d.row.Ended.IsZero() {
		switch job, ok := d.pick(a.Jobs); {
		case ok && job.State.Ended():
			d.row.Job = job
		case ok && job.Nodes != "":
			d.row.Job.Nodes = job.Nodes // it had a node, though its end was missed
		}
	}
	s := d.news.Observation
	if s == nil {
		return
	}
	job, ok := d.pick(s.Jobs)
	switch {
	case ok && !job.State.Ended():
		d.row.Job, d.row.Ended = job, time.Time{}
	case ok:
		d.row.Job = job
		d.over(fmt.Sprintf("Slurm shows job %s %s", job.ID, job.State))
	case s.Asked.After(d.row.Submitted.Add(d.policy.SubmitGrace)):
		d.over("a whole snapshot does not show the job any more")
	}
}

// over notes that Slurm has no live job for the attempt, and asks for what may
// say how it ended.
func (d *decision) over(reason string) {
	if !d.row.Ended.IsZero() {
		return
	}
	d.row.Ended, d.row.Reason = d.now, reason
	d.want(ReadRecords)
	if d.policy.Accounting && !d.row.Job.State.Ended() {
		d.want(QueryAccounting)
	}
}

// pick returns the attempt's job among those of its name: the one that began
// it, else the one that was submitted, else whichever stands for it.
func (d *decision) pick(jobs []sbatch.Job) (sbatch.Job, bool) {
	id := d.row.Job.ID.String()
	if d.row.Begun != nil && d.row.Begun.Job != "" {
		id = d.row.Begun.Job
	}
	for _, j := range jobs {
		if j.ID.String() == id {
			return j, true
		}
	}
	if d.row.Begun != nil && d.row.Begun.Job != "" {
		return sbatch.Job{}, false // another job of the name is not the one that began
	}
	return adoptable(&Observation{Jobs: jobs})
}

// lastWord says whether it is known what Slurm has to say of an ended job: the
// state in which it ended or, where the controller keeps that no longer, the
// answer of the accounts. An end that the accounts have missed is not waited
// for: they may show such a job as running for ever.
func (d *decision) lastWord() bool {
	if d.row.Job.State.Ended() || !d.policy.Accounting {
		return true
	}
	a := d.news.Accounting
	switch {
	case a != nil:
	case d.row.Exit != nil && d.now.Sub(d.row.Ended) > d.policy.RecordAge:
		return true // the worker's own account is enough, where there is no other for so long
	default:
		d.ask(QueryAccounting, d.news.AccountingFailure)
		return false
	}
	job, ok := d.pick(a.Jobs)
	if !ok || d.now.Sub(d.row.Ended) > d.policy.RecordAge {
		return true
	}
	d.again(fmt.Sprintf("the accounts show job %s %s though the queue does not show it", job.ID, job.State))
	return false
}

// settled says whether the disk had its time to show what was written before
// the job ended, and was looked at since.
func (d *decision) settled() bool {
	deadline := d.row.Ended.Add(d.policy.Settle)
	switch {
	case !d.row.Looked.Before(deadline):
		return true
	case d.now.Before(deadline):
		d.wake(deadline)
	default:
		d.ask(ReadRecords, d.news.LookFailure)
	}
	return false
}

// neverStarts stops a job of which Slurm says, for a while and still, that its
// request can never be met.
func (d *decision) neverStarts() {
	if d.row.Job.State != sbatch.StatePending || !impossible(d.row.Job.Reason) {
		d.row.Stuck = time.Time{}
		return
	}
	if d.row.Stuck.IsZero() {
		d.row.Stuck = d.now
	}
	patience := d.policy.StuckFor
	if d.row.Stuck.Sub(d.row.Since) > couldStart {
		patience = couldStart // an administrator may be at work on the partition
	}
	if d.news.Observation == nil || d.now.Before(d.row.Stuck.Add(patience)) {
		return
	}
	d.stop(Verdict{Cause: spool.CauseUser, Failure: fmt.Sprintf(
		"Slurm can never start this job (%s). Asked of queue %s: %s.", d.row.Job.Reason, d.queue.Tag, d.asked())},
		"Slurm says that the job can never start: "+d.row.Job.Reason)
}

// couldStart is after how long in the queue a job counts as one that could have
// started, and how long a reason for which it cannot is borne with then.
const couldStart = 10 * time.Minute

// impossible says whether a pending job's reason will not go away by waiting
// (squeue(1), JOB REASON CODES).
func impossible(reason string) bool {
	switch reason {
	case "BadConstraints", "PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit",
		"AssocMaxCpuPerJobLimit", "AssocMaxMemPerJob", "AssocMaxWallDurationPerJobLimit", "AssocMaxGRESPerJob",
		"QOSMaxCpuPerJobLimit", "QOSMaxMemoryPerJob", "QOSMaxWallDurationPerJobLimit", "QOSMaxGRESPerJob",
		"InvalidAccount", "InvalidQOS":
		return true
	}
	return false
}

// concluded ends the attempt: with another one where that may help and is
// allowed, else with the verdict.
func (d *decision) concluded(v Verdict) {
	begun := d.row.Begun != nil
	if v.Cause == spool.CausePlatform && d.row.Stop == nil && d.row.Attempt < d.policy.MaxAttempts &&
		(!begun && !d.mayHaveBegun() || d.queue.RetryBegun == RetryOnPlatform) {
		d.retry(v.Failure)
		return
	}
	if !begun {
		d.finish(v, "the attempt ended before it was seen to begin: "+string(v.Cause))
		return
	}
	d.row.Verdict = &v
	d.enter(Collecting, "the attempt ended: "+string(v.Cause))
	d.row.Times.CleaningUp, d.row.Times.Uploading = d.now, d.now
}

// mayHaveBegun says whether the attempt may have begun though no record says
// so, because its records are gone.
func (d *decision) mayHaveBegun() bool {
	job := d.row.Job
	switch {
	case d.row.Gone.IsZero():
		return false
	case !d.policy.Accounting, job.Nodes != "":
		return true
	}
	return job.ID != 0 && !job.State.Ended() // it is not known how the job ended
}

// retry sends the bundle back for its next attempt. The last one was closed,
// or began and has ended.
func (d *decision) retry(why string) {
	d.enter(Staging, fmt.Sprintf("attempt %d did not do: %s", d.row.Attempt, why))
	d.row.Trouble = why
	d.row.Due = d.now.Add(backoff(d.row.Attempt))
	r := &d.row
	r.SubmissionName, r.Index, r.Submitted, r.Job = "", 0, time.Time{}, sbatch.Job{}
	r.Generation, r.Prepared, r.Absent = 0, false, time.Time{}
	r.Ended, r.Looked, r.LastWords = time.Time{}, time.Time{}, ""
	r.Stuck, r.Cancelled, r.Fenced, r.Gone = time.Time{}, time.Time{}, false, time.Time{}
	r.Begun, r.Exit, r.Status, r.Times.Running = nil, nil, nil, time.Time{}
	// Records of the attempt that is over say nothing of the next one.
	d.news.Records, d.news.Fenced, d.news.Observation, d.news.Accounting, d.news.Submitted = nil, nil, nil, nil, nil
}

// finish ends a bundle that has no results to collect.
func (d *decision) finish(v Verdict, reason string) {
	d.row.Verdict = &v
	d.finalize(reason)
}
