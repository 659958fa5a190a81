package plan

import (
	"cmp"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// noteRequeued notes that Slurm has put the job back into the queue since the attempt began: a requeue makes the time of
// submission later (Slurm src/slurmctld/job_mgr.c: _job_requeue_op). The begin has the time of the node's clock.
func (d *decision) noteRequeued(job sbatch.Job) {
	begun := d.row.Begun
	if begun != nil && !begun.At.IsZero() && !d.row.Standalone && job.Submitted.After(begun.At.Add(ClockSlack)) {
		d.row.Requeued = true
	}
}

// stopHeldJob ends an attempt whose job was put back into the queue after its begin, as by scontrol requeue. The job's
// next start could not begin the attempt a second time; and if the job is held, as by scontrol requeuehold, its start might
// never come. A site's cache in front of squeue may show the job as it was before its begin, so Slurm has to show a hold
// for couldStart. The exit record of the attempt is another proof of its end.
func (d *decision) stopHeldJob() {
	job := d.row.Job
	held := job.State == sbatch.StatePending && sbatch.Explain(job.Reason).Category == sbatch.WaitsForRelease ||
		job.State == sbatch.StateRequeueHold || job.State == sbatch.StateSpecialExit
	const back = "Slurm job %s was put back into the queue while it ran on %s%s: a run that has begun does not begin a second time in the same job."
	switch {
	case d.row.Requeued && d.row.Exit != nil:
		d.setStopVerdict(platform(back, job.ID, d.row.Node(), ""), "Slurm has put the job back into the queue after its begin")
	case !held && (!d.row.Requeued || !d.row.jobIsBack()):
		d.row.ImpossibleSince = time.Time{}
	case d.row.ImpossibleSince.IsZero(), d.row.ImpossibleSince.Before(d.row.PhaseSince):
		d.row.ImpossibleSince = d.now
	case d.news.Observation != nil && d.now.Sub(d.row.ImpossibleSince) >= couldStart:
		d.row.Requeued = true
		where, reason := "", "Slurm has put the job back into the queue after its begin"
		if held {
			where, reason = ", and is held there ("+backInQueue(job)+")", "Slurm holds the job after its begin"
		}
		d.setStopVerdict(platform(back, job.ID, d.row.Node(), where), reason)
	}
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

// backInQueue returns Slurm's word for a job that is back in the queue: its reason, or its state if it has no reason.
func backInQueue(job sbatch.Job) string {
	reason := strings.TrimPrefix(job.Reason, "None")
	return cmp.Or(reason, string(job.State))
}
