package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// noteRequeued notes that Slurm has put the job back into the queue since the attempt began: a requeue makes the time of
// submission later, once the job has completed (Slurm src/slurmctld/job_mgr.c: batch_requeue_fini). asked is the time of the
// question for the job.
//
// A site's cache in front of squeue may show the job as it was before its begin. It then has the time that the bridge knew
// when it learnt of the begin. A bridge that knew none compares with the begin, which has the time of the node's clock. If
// that is slow, the state of the job shows that it has not come back.
func (d *decision) noteRequeued(asked time.Time) {
	r := &d.row
	switch known, now := r.SubmittedAsBegun, r.Job.Submitted; {
	case r.Begun == nil:
	case r.runsAgain():
		r.Requeued = true
	case !r.jobIsBack():
		r.SubmittedAsBegun = cmp.Or(known, now)
	case !known.IsZero() && now.After(known) && asked.After(r.PhaseSince),
		!r.Begun.At.IsZero() && now.After(r.Begun.At.Add(ClockSlack)):
		r.Requeued = true
	}
}

// runsAgain reports whether the pack of a member that has begun has started once more since, or has ended after that: Slurm may put
// it back, and start it again, between two snapshots. The start is compared with the node's clock, so a later submission than the
// bridge knew has to show the requeue, too.
func (r Row) runsAgain() bool {
	known := r.SubmittedAsBegun
	return r.Pack && r.Begun != nil && !r.jobIsBack() && !known.IsZero() && r.Job.Submitted.After(known) &&
		!r.Begun.At.IsZero() && r.Job.Start.After(r.Begun.At.Add(ClockSlack))
}

// cancelledInRequeue reports whether the row's job was cancelled before its requeue had completed. squeue shows such a job as cancelled,
// with the times of the run that the requeue has ended, and the accounting database has no other end of that run than REQUEUED (Slurm
// src/slurmctld/job_mgr.c: job_signal).
func (r Row) cancelledInRequeue(accounted []sbatch.Job) bool {
	return r.Job.State == sbatch.StateCancelled && !r.Job.Start.IsZero() && slices.ContainsFunc(accounted, func(j sbatch.Job) bool {
		return j.ID == r.Job.ID && j.State == sbatch.StateRequeued && j.Start.Equal(r.Job.Start)
	})
}

// lostItsRun reports whether the run of the job that began the attempt is over, and the job goes on without it: it is back in the
// queue, or it is a pack, which may run other members again.
func (r Row) lostItsRun() bool { return r.Requeued && (r.Pack || r.jobIsBack()) }

// concludedAsRequeued ends an attempt that has no exit record, whose job was put back into the queue after its begin, and
// reports whether it did. The job's next start could not begin the attempt a second time; and if the job is held, as by
// scontrol requeuehold, its start might never come. The worker may still write its record, so the job has to be back for
// couldStart, and the disk is read once more.
//
// Without the proof of noteRequeued the worker may live, so a job that is held for couldStart is stopped first. A job that
// the last snapshot lacks is not held: its attempt ends like any other whose job is gone, and may be followed by another.
func (d *decision) concludedAsRequeued() bool {
	job := d.row.Job
	held := isHeld(job)
	gone := !d.row.NoJobSince.IsZero()
	where := ""
	if held && !gone {
		where = ", and is held there (" + backInQueue(job) + ")"
	}
	switch {
	case d.row.StopVerdict != nil:
	case !held && !d.row.lostItsRun():
		d.row.ImpossibleSince = time.Time{}
	case !d.backForLong():
	case d.row.Requeued && !d.readWhenBack():
	case d.row.Requeued:
		d.conclude(d.putBack(where))
		return true
	case d.news.Observation != nil && !gone:
		d.row.Requeued = true
		d.setStopVerdict(d.putBack(where), "Slurm holds the job after its begin")
	}
	return false
}

// isHeld reports whether Slurm holds a job in the queue until somebody releases it.
func isHeld(job sbatch.Job) bool {
	return job.State == sbatch.StatePending && sbatch.Explain(job.Reason).Category == sbatch.WaitsForRelease ||
		job.State == sbatch.StateRequeueHold || job.State == sbatch.StateSpecialExit
}

// backForLong reports whether the job of an attempt that has begun, which is back in the queue, has been there for couldStart.
func (d *decision) backForLong() bool {
	r := &d.row
	if r.ImpossibleSince.IsZero() || r.ImpossibleSince.Before(r.PhaseSince) {
		r.ImpossibleSince = d.now
	}
	return d.now.Sub(r.ImpossibleSince) >= couldStart
}

// readWhenBack reports whether the records were read after backForLong became true, and wants them otherwise.
func (d *decision) readWhenBack() bool {
	if d.readSince(d.row.ImpossibleSince.Add(couldStart)) {
		return true
	}
	d.wantUnlessFailed(ReadRecords, d.news.RecordsFailure)
	return false
}

// readSince reports whether this news has the attempt's records as they were at t or later.
func (d *decision) readSince(t time.Time) bool {
	rec := d.news.Records
	return rec != nil && rec.Attempt == d.row.Attempt.Number && !rec.Read.Before(t)
}

// putBack returns the verdict on an attempt whose job Slurm has put back into the queue; where is a clause about the job.
func (d *decision) putBack(where string) Verdict {
	return platform("Slurm job %s was put back into the queue while it ran on %s%s: a run that has begun does not begin a second time in the same job.",
		d.row.Job.ID, d.row.Node(), where)
}

// jobIsBack reports whether Slurm shows the job of an attempt that has begun in the queue again.
func (r Row) jobIsBack() bool {
	switch r.Job.State {
	case sbatch.StatePending, sbatch.StateRequeued, sbatch.StateRequeueFed, sbatch.StateRequeueHold, sbatch.StateSpecialExit, sbatch.StateExpediting:
		return !r.Standalone && r.Job.ID != 0
	default: // the other states are those of a job that has nodes, or of one that has ended
	}
	return false
}

// hasComeBack reports whether to tell that the job is in the queue again. The last snapshot may be older than the begin,
// and shows the job as it waited then: one that is only pending has to have been submitted again since, as by a requeue.
func (r Row) hasComeBack() bool {
	stale := r.Job.State == sbatch.StatePending && !r.Requeued && (r.Begun == nil || !r.Job.Submitted.After(r.Begun.At))
	return r.jobIsBack() && !stale || r.lostItsRun()
}

// backInQueue returns Slurm's word for a job that is back in the queue: its reason, or its state if it has no reason.
func backInQueue(job sbatch.Job) string {
	reason := strings.TrimPrefix(job.Reason, "None")
	return cmp.Or(reason, string(job.State))
}
