package slurmtest

import (
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// End is how a batch script ended: by an exit status, or by a signal.
type End struct {
	Code, Signal int
	// OutOfMemory is set when the kernel killed one of its processes for
	// memory.
	OutOfMemory bool
}

type unheard struct {
	id      sbatch.JobID
	restart int
	end     End
}

// Ended reports that no process of a launch is left. Reports of launches that
// the controller does not wait for are ignored, as those of a node that was
// down, or of a job it forgot; what arrives while it is stopped is heard when
// it is back.
func (c *Controller) Ended(now time.Time, id sbatch.JobID, restart int, end End) {
	if c.stopped {
		c.unheard = append(c.unheard, unheard{id, restart, end})
		return
	}
	c.advance(now)
	c.orphans = slices.DeleteFunc(c.orphans, func(l Launch) bool { return l.Job == id && l.Restart == restart })
	j := c.find(id)
	if j == nil || !j.running || j.restarts != restart {
		return
	}
	if j.state == sbatch.StateRunning {
		j.state, j.reason = sbatch.StateCompleted, "None"
		switch {
		case end.OutOfMemory:
			j.state, j.reason = sbatch.StateOutOfMemory, "OutOfMemory"
		case end.Signal != 0:
			j.state, j.reason = sbatch.StateFailed, "JobLaunchFailure" // whatever the signal was
		case end.Code != 0:
			j.state, j.reason = sbatch.StateFailed, "NonZeroExitCode"
		}
		j.end, j.completing = now, true
		c.rows[j.row].exit = end
		c.recordEnd(j)
	}
	j.running, j.killAt, j.cleared = false, time.Time{}, now.Add(c.site.Epilog)
	c.dirty = true
}

// completed ends a job's time on its node.
func (c *Controller) completed(j *job) {
	j.completing, j.running, j.killAt, j.cleared = false, false, time.Time{}, time.Time{}
	if j.node != noNode {
		n := &c.nodes[j.node]
		n.freeCPUs += max(1, j.CPUs)
		n.freeMemory += c.memoryOf(j.spec)
		n.busyGPUs &^= j.gpus
		j.gpus = 0
	}
	if j.again {
		c.pend(j, "None")
	}
	c.dirty = true
}

// pend makes a job wait again, as a new one of its old id. Its begin is set
// already.
func (c *Controller) pend(j *job, reason string) {
	j.again, j.state, j.reason, j.node, j.nodeName = false, sbatch.StatePending, reason, noNode, ""
	j.start, j.end, j.ready = time.Time{}, time.Time{}, j.submitted.Add(c.site.StartDelay)
	j.restarts++
	j.row = c.newRow(j)
	c.dirty = true
}

// postpone is the first part of a requeue.
func (c *Controller) postpone(now time.Time, j *job) {
	j.again, j.submitted, j.begin = true, now, now.Add(c.site.RequeueDelay)
}

// Requeue begins a job again, as an administrator does: its processes are
// ended, and it waits for RequeueDelay. A job that has ended is begun again
// too. One submitted with --no-requeue, as every Request's that does not say
// otherwise in Extra, is not.
func (c *Controller) Requeue(now time.Time, id sbatch.JobID) error {
	if c.stopped {
		return unanswered("requeue "+id.String(), away)
	}
	c.advance(now)
	if why := c.requeue(now, id); why != "" {
		return unanswered("requeue "+id.String(), why)
	}
	return nil
}

func (c *Controller) requeue(now time.Time, id sbatch.JobID) string {
	j := c.find(id)
	switch {
	case j == nil:
		return invalidID
	case !j.requeue:
		return "Requested operation is presently disabled"
	case j.state == sbatch.StatePending:
		return "Job is pending execution"
	case j.state == sbatch.StateRunning:
		c.postpone(now, j)
		c.terminate(now, j, sbatch.StateRequeued, "None")
		j.state = sbatch.StatePending
	case j.completing:
		c.rows[j.row].state, c.rows[j.row].end = sbatch.StateRequeued, now
		c.postpone(now, j)
	default: // the accounts then show that it was requeued, and not how it ended
		c.rows[j.row].state, c.rows[j.row].end = sbatch.StateRequeued, now
		c.postpone(now, j)
		c.pend(j, "None")
	}
	return ""
}

// Preempt takes a running job's node away: in PreemptMode=REQUEUE it is
// requeued if it may be, else it is cancelled and PREEMPTED.
func (c *Controller) Preempt(now time.Time, id sbatch.JobID, requeue bool) {
	if c.stopped {
		return
	}
	c.advance(now)
	j := c.find(id)
	if j == nil || j.state != sbatch.StateRunning {
		return
	}
	again := requeue && j.requeue
	if again {
		c.postpone(now, j)
	}
	c.terminate(now, j, sbatch.StatePreempted, "None")
	if again {
		j.state = sbatch.StatePending
	}
}

// FailBoot gives a pending job a node that does not boot for it: BOOT_FAIL, or
// requeued if it may be.
func (c *Controller) FailBoot(now time.Time, id sbatch.JobID) {
	if c.stopped {
		return
	}
	c.advance(now)
	j := c.find(id)
	if j == nil || j.state != sbatch.StatePending || j.completing {
		return
	}
	p := c.partition(j.Partition)
	at, gpus := c.fit(p, j)
	if at == noNode {
		return
	}
	if len(j.waiting) > 0 {
		j = c.split(slices.IndexFunc(c.jobs, func(j job) bool { return j.id == id }))
	}
	c.launch(now, j, at, gpus)
	c.orders = c.orders[:len(c.orders)-1] // it never got so far
	c.failOn(now, j, sbatch.StateBootFail)
}

// FailLaunch says that a node could not begin the batch script that it was
// ordered to. The job waits again, whether or not it may be requeued, and is
// held; its node is drained (Slurm src/slurmctld/proc_req.c:
// _slurm_rpc_complete_batch_script, job_mgr.c: _job_complete).
func (c *Controller) FailLaunch(now time.Time, id sbatch.JobID, restart int) {
	if c.stopped {
		return
	}
	c.advance(now)
	j := c.find(id)
	if j == nil || j.state != sbatch.StateRunning || j.restarts != restart {
		return
	}
	c.nodes[j.node].drained = true
	j.state, j.end, j.submitted = sbatch.StateNodeFail, now, now
	c.recordEnd(j)
	c.completed(j)
	j.held = true
	c.pend(j, "launch failed requeued held")
}

// failOn ends a job by its node's fault, or requeues it.
func (c *Controller) failOn(now time.Time, j *job, state sbatch.State) {
	j.state, j.end, j.reason = state, now, "NodeDown"
	if j.requeue {
		c.postpone(now, j)
	}
	c.recordEnd(j)
	c.completed(j)
}

// Hold keeps a pending job from starting until it is released.
func (c *Controller) Hold(now time.Time, id sbatch.JobID) {
	if c.stopped {
		return
	}
	c.advance(now)
	if j := c.find(id); j != nil && j.state == sbatch.StatePending {
		j.held, j.reason, c.dirty = true, "JobHeldUser", true
	}
}

// Release lets a held job start.
func (c *Controller) Release(now time.Time, id sbatch.JobID) {
	if c.stopped {
		return
	}
	c.advance(now)
	if j := c.find(id); j != nil && j.held {
		c.rows[j.row].waited = j.reason
		j.held, j.reason, c.dirty = false, "None", true
		if r := &c.rows[j.row]; r.eligible.IsZero() {
			r.eligible = now
		}
	}
}
