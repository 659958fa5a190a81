package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// stopImpossibleJob stops a job if Slurm gives a reason that can never pass, and has given it for some time. If
// the queue may be at fault, the bridge asks Slurm whether it accepts the queue's smallest job; while it accepts
// none, the row waits as for an outage. A job that the last snapshot lacks has no reason any more.
func (d *decision) stopImpossibleJob() {
	r := &d.row
	if !r.NoJobSince.IsZero() {
		return
	}
	if r.Job.State != sbatch.StatePending || !impossible(r.Job.Reason) {
		r.ImpossibleSince, r.SiteChanges = time.Time{}, ""
		return
	}
	ofQueue := r.reasonOfQueue(r.Job.Reason) || r.Job.Reason == "PartitionConfig" && d.fitsANode()
	if r.ImpossibleSince.IsZero() {
		r.ImpossibleSince, r.QueueTrouble = d.now, ofQueue
	}
	canary := d.news.Canary
	if canary != nil && canary.Failure == "" && !ofQueue {
		d.applyCanary(*canary)
	}
	wait := d.policy.StuckFor
	if r.ImpossibleSince.Sub(r.PhaseSince) > couldStart {
		wait = max(wait, couldStart) // an administrator may be at work on the partition
	}
	if r.QueueTrouble || ofQueue { // the reason may have changed since the first one
		wait = max(wait, d.policy.OutagePatience)
	}
	if d.news.Observation == nil && canary == nil || d.now.Before(r.ImpossibleSince.Add(wait)) {
		return
	}
	switch {
	case ofQueue:
	case canary == nil:
		d.wantEffect(AskQueue)
		return
	case canary.Failure != "": // the next snapshot asks again
		return
	}
	if r.Pack { // a member alone may start
		d.fence()
		return
	}
	cause := spool.CauseUser
	if r.SiteChanges != "" {
		cause = spool.CausePlatform
	}
	d.setStopVerdict(Verdict{Cause: cause, Failure: d.neverStarts()},
		"Slurm says that the job can never start: "+r.Job.Reason)
}

// neverStarts gives the reason for which Slurm can never start the row's job, repeats the request, and names the change that helps.
func (d *decision) neverStarts() string {
	why := sbatch.Explain(d.row.Job.Reason)
	sentence := fmt.Sprintf("Slurm can never start this job (%s): %s. Asked of queue %s: %s.", d.row.Job.Reason, why.Text, d.queue.Tag, d.requested())
	switch size := d.tooLarge(); {
	case d.row.SiteChanges != "":
		return sentence + " " + d.row.siteChanged()
	case size != "":
		return sentence + " " + size
	case why.Action != "":
		return sentence + " " + why.Action
	}
	return sentence
}

// couldStart is the time in the queue after which a job counts as one that could have started. The bridge
// gives such a job the same time again before it stops it.
const couldStart = 10 * time.Minute

// impossible reports whether a pending job's reason stays however long the job waits (squeue(1), JOB
// REASON CODES).
func impossible(reason string) bool { return sbatch.Explain(reason).Category == sbatch.NeverStarts }

// notPermitted reports whether the partition does not permit the account, the QOS or the group of a job
// (Slurm src/slurmctld/job_mgr.c: job_limits_check). Slurm 24.11 and later give PartitionConfig for the
// account.
func notPermitted(reason string) bool {
	return strings.Contains(reason, " permitted to use this partition")
}

// fitsANode reports whether a node of the queue is known to be large enough for the row's request.
func (d *decision) fitsANode() bool {
	return len(d.queue.Nodes) > 0 && d.queue.Fits(d.row.Resources)
}

// reasonOfQueue reports whether such a reason is certainly no bundle's fault: the queue's configuration
// names the partition, the account and the QOS, and the time limit of a bundle that requests none. That of a pack
// is no bundle's, and its members can go alone. Each job runs on one node.
func (r *Row) reasonOfQueue(reason string) bool {
	switch reason {
	case "InvalidAccount", "InvalidQOS", "AccountNotAllowed", "QOSNotAllowed", "PartitionNodeLimit":
		return true
	case "PartitionTimeLimit", "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit":
		return r.Resources.Time == 0 && !r.Pack
	}
	return notPermitted(reason)
}
