package plan

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// conclude ends the attempt. The bundle gets another attempt if that may help and is allowed, else the
// verdict.
func (d *decision) conclude(v Verdict) {
	d.noteEndOfJob()
	begun := d.row.Begun != nil
	if v.Cause == spool.CausePlatform && d.row.StopVerdict == nil {
		node, failed := d.failedStart()
		switch {
		case !begun && ghost(d.row.Job) && d.row.Exclude != "": // as in applySubmission; sbatch's answer was lost
			why := refusedWithout(d.row.Exclude)
			d.nextAttempt(why)
			d.row.AnyNode = true
			return
		case failed && d.mayStartElsewhere():
			d.startElsewhere(node, v.Failure)
			return
		case failed:
		case begun && d.row.resumes() > 0: // it is resumed, or ends
		case d.row.FailedAttempts+1 < d.policy.MaxAttempts && (!begun && !d.mayHaveBegun() || d.queue.RetryBegun == RetryOnPlatform):
			if state := d.row.Job.State; !begun && (state == sbatch.StateNodeFail || state == sbatch.StateBootFail) {
				// Slurm may go on using the node: a launch that came too late does not take it down
				// (slurm.conf(5): BatchStartTimeout).
				d.row.avoid(d.row.Job.Nodes)
			}
			if d.row.Pack && begun { // it may be the cause
				d.boundTogether(1)
			}
			d.nextAttempt(v.Failure)
			d.row.FailedAttempts++
			return
		}
	}
	switch {
	case !begun:
		d.endUnbegun(v, "the attempt ended, and no record shows that it began: "+string(v.Cause))
	case v.Restage:
		d.giveBack(v, "the command was stopped: given back to the server")
	case !d.resume(v):
		d.collect(d.explainResumption(v), "the attempt ended: "+string(v.Cause))
	}
}

// setEnded sets the attempt's job to one that has ended.
func (r *Row) setEnded(job sbatch.Job) {
	job.Nodes = cmp.Or(job.Nodes, r.LastNodes)
	r.Job, r.LastNodes = job, job.Nodes
	r.Requeued = r.Requeued || r.runsAgain()
}

// mayHaveBegun reports whether the attempt may have begun without a record of it, because its records are
// gone.
func (d *decision) mayHaveBegun() bool {
	job := d.row.Job
	switch {
	case d.row.RecordsGoneSince.IsZero():
		return false
	case !d.policy.Accounting, job.Nodes != "":
		return true
	}
	return job.ID != 0 && !job.State.Ended() // the job's end is not known
}

// failedStart reports whether the attempt's command has certainly not started, for no fault of the bundle.
// Either the worker's record shows that, or the job has ended and left nothing on the shared disk, or the
// node could not launch it. node is the node at fault; empty if the shared disk was full, because all
// nodes share it.
func (d *decision) failedStart() (node string, failed bool) {
	r := &d.row
	switch {
	case d.notStarted() && (!r.Exit.Terminated || r.Job.State == sbatch.StateTimeout):
		if r.Exit.SharedDiskFull {
			return "", true
		}
		return r.Node(), true
	case r.Begun != nil || !r.Fenced || d.mayHaveBegun():
	case r.Job.State == sbatch.StateFailed, r.Job.State == sbatch.StateTimeout, d.launchFailed():
		return r.Job.Nodes, r.Job.Nodes != ""
	}
	return "", false
}

// mayStartElsewhere reports whether a bundle gets another attempt after its command did not start. It gets
// MaxAttempts of them; more until StagePatience is over, because all nodes may be sick for minutes; and
// more while its queue is held up.
func (d *decision) mayStartElsewhere() bool {
	r := &d.row
	return r.Held != "" || r.FailedStarts+1 < d.policy.MaxAttempts || d.now.Sub(r.StartsFailSince) < d.policy.StagePatience
}

// startElsewhere sends the bundle back for an attempt on another node. While the queue is held up the
// attempt does not count, because every node would fail.
func (d *decision) startElsewhere(node, why string) {
	surely := !d.notStarted() || d.row.Exit.NodeAtFault
	d.nextAttempt(why)
	r := &d.row
	r.FailedNode, r.FailedSurely = node, surely
	r.avoid(node)
	r.DueAt = d.now.Add(backoff.After(r.FailedStarts+1, firstStartPause, longestStartPause))
	if r.Held == "" {
		r.FailedStarts++
	}
	r.StartsFailSince = cmp.Or(r.StartsFailSince, d.now)
}

// avoid excludes a node from the row's further attempts.
func (r *Row) avoid(node string) {
	r.SickNodes = joinNodes(append(strings.Split(r.SickNodes, ","), node)...)
	r.AnyNode = false // Slurm may have accepted other nodes since
}

// The pauses after attempts whose commands did not start grow from firstStartPause, that of Kubernetes' containers
// (kubernetes/pkg/kubelet/kubelet.go: backOffPeriod), to longestStartPause. The first ones are short, because the next attempt avoids
// the node, and most nodes are well. StagePatience is for nodes that are all sick.
const (
	firstStartPause   = 10 * time.Second
	longestStartPause = 8 * time.Minute
)

// nextAttempt sends the bundle back for another attempt. The last one was fenced, or has begun and ended.
func (d *decision) nextAttempt(why string) {
	d.enter(Staging, fmt.Sprintf("attempt %d failed: %s", d.row.Attempt.Number, why))
	d.row.LastFailure = why
	d.row.noteTried()
	d.row.DueAt = d.now.Add(pauseAfter(d.row.Attempt.Number))
	d.noteCost()
	d.keepFiles()
	d.row.Attempt = Attempt{Number: d.row.Attempt.Number, OnDisk: d.row.OnDisk}
	// News about the last attempt does not concern the next one.
	d.news.Records, d.news.Fenced, d.news.Observation, d.news.Accounting, d.news.Submitted, d.news.Carried, d.news.Submission = nil, nil, nil, nil, nil, nil, nil
}
