package slurmtest

import (
	"fmt"
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

// String is the end as sacct prints it. sacct takes an exit status above 128 for the signal by which a
// shell's command ended (sacct(1): ExitCode).
func (e End) String() string {
	if e.Code > 128 {
		return fmt.Sprintf("0:%d", e.Code-128)
	}
	return fmt.Sprintf("%d:%d", e.Code, e.Signal)
}

// missedEnd is an end that a stopped controller was not told of.
type missedEnd struct {
	id      sbatch.JobID
	restart int
	end     End
}

// Ended reports that no process of a launch is left. The controller ignores
// reports of launches that it does not wait for: of a node that was down, or of
// a job it forgot. A stopped controller gets the report when it is back.
func (c *Controller) Ended(now time.Time, id sbatch.JobID, restart int, end End) {
	if c.stopped {
		c.missed = append(c.missed, missedEnd{id, restart, end})
		return
	}
	c.advance(now)
	c.orphans = slices.DeleteFunc(c.orphans, func(l Launch) bool { return l.Job == id && l.Restart == restart })
	j := c.jobByID(id)
	if j == nil || !j.running || j.restarts != restart {
		return
	}
	if j.onNode() {
		j.end = j.endBy(now)
		j.state, j.reason = sbatch.StateCompleted, "None"
		switch {
		case end.OutOfMemory:
			j.state, j.reason = sbatch.StateOutOfMemory, "OutOfMemory"
		case end.Signal != 0:
			j.state, j.reason = sbatch.StateFailed, c.site.Slurm.signalled(end.Signal)
		case end.Code != 0:
			j.state, j.reason = sbatch.StateFailed, "NonZeroExitCode"
		}
		j.completing, j.exit = true, end.String()
		c.recordEnd(j)
	}
	j.running, j.killAt, j.cleared = false, time.Time{}, now.Add(c.site.Epilog)
	c.dirty = true
}

// complete ends a job's time on its node.
func (c *Controller) complete(j *job) {
	j.completing, j.running, j.killAt, j.cleared = false, false, time.Time{}, time.Time{}
	if j.node != noNode {
		n := &c.nodes[j.node]
		n.freeCPUs += max(1, j.CPUs)
		n.freeMemory += c.memoryOf(j.spec)
		n.busyGPUs &^= j.gpus
		j.gpus = 0
	}
	if j.requeuing {
		j.requeuing, j.state, j.reason, j.node, j.nodeName = false, sbatch.StatePending, "None", noNode, ""
		j.start, j.end, j.suspended, j.schedulable = time.Time{}, time.Time{}, 0, j.submitted.Add(c.site.StartDelay)
		j.restarts++
		j.record = c.newRecord(j)
	}
	c.dirty = true
}

// startRequeue marks a job as one that is pending again once it has completed.
func (c *Controller) startRequeue(now time.Time, j *job) {
	j.requeuing, j.submitted, j.begin = true, now, now.Add(c.site.RequeueDelay)
}

// Requeue begins a job again, as an administrator does: its processes are
// ended, and it waits for RequeueDelay. A job that has ended begins again too.
// Only a job with --requeue in the Extra of its Request may be requeued.
func (c *Controller) Requeue(now time.Time, id sbatch.JobID) error {
	op := "requeue " + id.String()
	if c.stopped {
		return failed(op, unreachable)
	}
	c.advance(now)
	j := c.jobByID(id)
	switch {
	case j == nil:
		return failed(op, invalidID)
	case !j.requeue:
		return failed(op, "Requested operation is presently disabled")
	case j.state == sbatch.StatePending:
		return failed(op, "Job is pending execution")
	}
	onNode := j.onNode()
	c.startRequeue(now, j)
	if onNode {
		c.terminate(now, j, sbatch.StateRequeued, "None")
		j.state = sbatch.StatePending
		return nil
	}
	if !c.site.Slurm.keepsEnd() {
		c.records[j.record].state, c.records[j.record].end = sbatch.StateRequeued, now
	}
	if !j.completing {
		j.node = noNode // its resources are free already
		c.complete(j)
	}
	return nil
}

// Preempt takes a running job's node away: in PreemptMode=REQUEUE it is
// requeued if it may be, else it is cancelled and PREEMPTED.
func (c *Controller) Preempt(now time.Time, id sbatch.JobID, requeue bool) {
	if c.stopped {
		return
	}
	c.advance(now)
	j := c.jobByID(id)
	if j == nil || j.state != sbatch.StateRunning {
		return
	}
	requeue = requeue && j.requeue
	if requeue {
		c.startRequeue(now, j)
	}
	c.terminate(now, j, sbatch.StatePreempted, "None")
	if requeue {
		j.state = sbatch.StatePending
	}
}

// FailBoot gives a pending job a node that does not boot for it: BOOT_FAIL, or
// requeued if it may be. It is false if the job has not got one.
func (c *Controller) FailBoot(now time.Time, id sbatch.JobID) bool {
	j := c.place(now, id)
	if j == nil {
		return false
	}
	c.failOnNode(now, j, sbatch.StateBootFail)
	return true
}

// FailLaunch gives a pending job a node that cannot launch it, since its prolog fails for example. slurmd
// cancels a job that may not be requeued, as user 0 (Slurm src/slurmd/slurmd/req.c: _launch_job_fail). It
// is false if the job has got no node, or may be requeued.
func (c *Controller) FailLaunch(now time.Time, id sbatch.JobID) bool {
	if j := c.jobByID(id); j == nil || j.requeue {
		return false
	}
	j := c.place(now, id)
	if j == nil {
		return false
	}
	j.state, j.end, j.by = sbatch.StateCancelled, now, "0"
	c.recordEnd(j)
	c.complete(j)
	return true
}

// place gives a pending job a node, on which nothing of it runs; nil if there is none for it.
func (c *Controller) place(now time.Time, id sbatch.JobID) *job {
	if c.stopped {
		return nil
	}
	c.advance(now)
	j := c.jobByID(id)
	if j == nil || j.state != sbatch.StatePending || j.completing {
		return nil
	}
	at, gpus := c.findNode(c.partition(j.Partition), j)
	if at == noNode {
		return nil
	}
	c.launch(now, j, at, gpus)
	c.orders = c.orders[:len(c.orders)-1] // it never got so far
	return j
}

// failOnNode ends a job by its node's fault, or requeues it.
func (c *Controller) failOnNode(now time.Time, j *job, state sbatch.State) {
	j.state, j.end, j.reason = state, j.endBy(now), "NodeDown"
	if j.requeue {
		c.startRequeue(now, j)
	}
	c.recordEnd(j)
	c.complete(j)
}

// Hold keeps a pending job from starting until it is released.
func (c *Controller) Hold(now time.Time, id sbatch.JobID) {
	if c.stopped {
		return
	}
	c.advance(now)
	if j := c.jobByID(id); j != nil && j.state == sbatch.StatePending {
		j.held, j.reason, c.dirty = true, "JobHeldUser", true
	}
}

// Release lets a held job start.
func (c *Controller) Release(now time.Time, id sbatch.JobID) {
	if c.stopped {
		return
	}
	c.advance(now)
	if j := c.jobByID(id); j != nil && j.held {
		r := &c.records[j.record]
		r.waitReason = j.reason
		j.held, j.reason, c.dirty = false, "None", true
		if r.eligible.IsZero() {
			r.eligible = now
		}
	}
}

// Suspend stops the processes of a running job, which keeps its node, as gang scheduling does
// (slurm.conf(5), PreemptMode=SUSPEND). It reports whether the job runs.
func (c *Controller) Suspend(now time.Time, id sbatch.JobID) bool {
	j := c.change(now, id, sbatch.StateRunning)
	if j == nil {
		return false
	}
	j.state, j.suspendedAt = sbatch.StateSuspended, now
	c.records[j.record].suspended = true
	c.order(Suspend, j)
	return true
}

// Resume lets a suspended job go on. Its time limit did not run meanwhile.
func (c *Controller) Resume(now time.Time, id sbatch.JobID) {
	j := c.change(now, id, sbatch.StateSuspended)
	if j == nil {
		return
	}
	j.state, j.suspended = sbatch.StateRunning, j.suspended+now.Sub(j.suspendedAt)
	c.records[j.record].suspended = false
	c.order(Resume, j)
}

// change returns a job that is to change from a state; nil if it is in another one, or the
// controller is stopped.
func (c *Controller) change(now time.Time, id sbatch.JobID, from sbatch.State) *job {
	if c.stopped {
		return nil
	}
	c.advance(now)
	j := c.jobByID(id)
	if j == nil || j.state != from || j.completing {
		return nil
	}
	c.dirty = true
	return j
}
