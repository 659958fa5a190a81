package slurmtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// End is the end of a batch script: by an exit status, or by a signal.
type End struct {
	Code, Signal int
	// OutOfMemory is set if the kernel killed one of its processes for want of memory.
	OutOfMemory bool
}

// String returns the end as sacct prints it. sacct takes an exit status above 128 for the signal that ended
// a shell's command (sacct(1): ExitCode).
func (e End) String() string {
	if e.Code > 128 {
		return fmt.Sprintf("0:%d", e.Code-128)
	}
	return fmt.Sprintf("%d:%d", e.Code, e.Signal)
}

// missedEnd is an end that was reported to a stopped controller.
type missedEnd struct {
	id      sbatch.JobID
	restart int
	end     End
}

// Ended reports that no process of a launch is left. The controller ignores reports of launches that it does
// not wait for: those of a node that was down, and of a job that it lost. A stopped controller handles the
// report when it starts again.
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

// complete releases a job's node. A job that is requeued has its new times of submission and begin from now on (Slurm
// src/slurmctld/job_mgr.c: batch_requeue_fini).
func (c *Controller) complete(now time.Time, j *job) {
	j.completing, j.running, j.killAt, j.cleared = false, false, time.Time{}, time.Time{}
	if j.node != noNode {
		n := &c.nodes[j.node]
		n.freeCPUs += max(1, j.CPUs)
		n.freeMemory += c.memoryOf(j.spec)
		n.busyGPUs &^= j.gpus
		j.gpus = 0
	}
	if j.requeuing {
		j.submitted, j.begin, c.requeued[j.id()] = now, now.Add(c.site.RequeueDelay), now
		j.requeuing, j.state, j.reason, j.node, j.nodeName = false, sbatch.StatePending, "None", noNode, ""
		j.start, j.end, j.suspended = time.Time{}, time.Time{}, 0
		if j.holding {
			j.holding, j.held, j.reason = false, true, requeuedHeld
		}
		j.restarts++
		j.record = c.newRecord(j)
	}
	c.dirty = true
}

// startRequeue marks a job that becomes pending again after it has completed.
func (c *Controller) startRequeue(now time.Time, j *job) {
	j.requeuing, j.holding, j.schedulable = true, false, now.Add(c.site.StartDelay)
}

// LastRequeue returns the last time at which a job was put back into the queue, also after the controller has purged it; zero for never. A job
// that is cancelled before it has completed does not come back.
func (c *Controller) LastRequeue(id sbatch.JobID) time.Time { return c.requeued[id] }

// Requeue begins a job again, like an administrator: it ends the job's processes, and the job waits for
// RequeueDelay. A job that has ended begins again too. Only a job with --requeue in the Extra of its Request
// may be requeued.
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
		c.complete(now, j)
	}
	return nil
}

// Preempt takes a running job's node away. In PreemptMode=REQUEUE the job is requeued if that is allowed;
// else it is cancelled and PREEMPTED.
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

// FailBoot gives a pending job a node that does not boot for it: the job ends as BOOT_FAIL, or is requeued if
// that is allowed. FailBoot returns false if the job gets no node.
func (c *Controller) FailBoot(now time.Time, id sbatch.JobID) bool {
	j := c.assignNode(now, id)
	if j == nil {
		return false
	}
	c.failOnNode(now, j, sbatch.StateBootFail)
	return true
}

// FailLaunch gives a pending job a node that cannot launch it, for example because its prolog fails. slurmd
// cancels a job that must not be requeued, as user 0 (Slurm src/slurmd/slurmd/req.c: _launch_job_fail).
// FailLaunch returns false if the job gets no node, or may be requeued.
func (c *Controller) FailLaunch(now time.Time, id sbatch.JobID) bool {
	if j := c.jobByID(id); j == nil || j.requeue {
		return false
	}
	j := c.assignNode(now, id)
	if j == nil {
		return false
	}
	j.state, j.end, j.by = sbatch.StateCancelled, now, "0"
	c.recordEnd(j)
	c.complete(now, j)
	return true
}

// assignNode gives a pending job a node without starting anything there; it returns nil if the job gets none.
func (c *Controller) assignNode(now time.Time, id sbatch.JobID) *job {
	if c.stopped {
		return nil
	}
	c.advance(now)
	if j := c.jobByID(id); j == nil || j.state != sbatch.StatePending || j.completing {
		return nil
	}
	j := c.ownJob(id)
	at, gpus := c.findNode(c.partition(j.Partition), j)
	if at == noNode {
		return nil
	}
	c.launch(now, j, at, gpus)
	c.orders = c.orders[:len(c.orders)-1] // the node does not get the order to start it
	return j
}

// failOnNode ends or requeues a job because its node is at fault.
func (c *Controller) failOnNode(now time.Time, j *job, state sbatch.State) {
	j.state, j.end, j.reason = state, j.endBy(now), "NodeDown"
	if j.requeue {
		c.startRequeue(now, j)
	}
	c.recordEnd(j)
	c.complete(now, j)
}

// Hold keeps a pending job, a task or all pending tasks of an array from starting until Release.
func (c *Controller) Hold(now time.Time, id sbatch.JobID) {
	c.eachJob(now, id, func(j *job) {
		if j.state == sbatch.StatePending {
			j.held, j.reason, c.dirty = true, "JobHeldUser", true
		}
	})
}

// eachJob calls change with a job, with a task, or with each record of an array.
func (c *Controller) eachJob(now time.Time, id sbatch.JobID, change func(j *job)) {
	if c.stopped {
		return
	}
	c.advance(now)
	if _, _, isTask := id.ArrayTask(); isTask {
		c.ownJob(id) // it is changed alone
	}
	for _, number := range c.jobsOf(id) {
		change(&c.jobs[c.numbered(number)])
	}
}

// Release lets a held job, a task or all tasks of an array start.
func (c *Controller) Release(now time.Time, id sbatch.JobID) {
	c.eachJob(now, id, func(j *job) {
		if !j.held {
			return
		}
		r := &c.records[j.record]
		r.waitReason = j.reason
		j.held, j.reason, c.dirty = false, "None", true
		if r.eligible.IsZero() {
			r.eligible = now
		}
	})
}

// Suspend stops the processes of a running job, which keeps its node, like gang scheduling (slurm.conf(5),
// PreemptMode=SUSPEND). It returns false if the job does not run.
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

// Resume continues a suspended job. The suspension does not count towards its time limit.
func (c *Controller) Resume(now time.Time, id sbatch.JobID) {
	j := c.change(now, id, sbatch.StateSuspended)
	if j == nil {
		return
	}
	j.state, j.suspended = sbatch.StateRunning, j.suspended+now.Sub(j.suspendedAt)
	c.records[j.record].suspended = false
	c.order(Resume, j)
}

// change returns a job that is about to leave a state; nil if it is in another one, or the controller is
// stopped.
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
