package slurmtest

import (
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Change has the values of a job that an administrator changes with scontrol update. A zero field changes nothing.
type Change struct {
	Name, Partition string
	Comment         *string
	// Time is the limit.
	Time time.Duration
	// Requeue permits that the job is requeued.
	Requeue bool
}

// Update changes a job that has not ended. Only a pending job changes its partition. The accounting database gets the
// new values, too.
func (c *Controller) Update(now time.Time, id sbatch.JobID, change Change) error {
	op := "update " + id.String()
	if c.stopped {
		return failed(op, unreachable)
	}
	c.advance(now)
	j := c.ownJob(id)
	switch {
	case j == nil:
		return failed(op, invalidID)
	case j.state.Ended() || j.completing:
		return failed(op, "Job/step already completing or completed")
	case change.Partition != "" && j.state != sbatch.StatePending:
		return failed(op, "Job is no longer pending execution")
	case change.Partition != "" && c.partition(change.Partition) == nil:
		return failed(op, "Invalid partition name specified")
	}
	s := *j.spec // running workers and earlier records keep the old one
	if change.Name != "" {
		s.Name = change.Name
	}
	if change.Partition != "" {
		s.Partition = change.Partition
	}
	if change.Comment != nil {
		s.Comment = *change.Comment
	}
	if change.Time > 0 {
		j.limit = change.Time
	}
	s.requeue = s.requeue || change.Requeue
	j.spec, c.records[j.record].spec, c.dirty = &s, &s, true
	return nil
}

// requeuedHeld is the reason of a job that is requeued and held.
const requeuedHeld = "job requeued in held state"

// RequeueHold is Requeue, and holds the job (scontrol requeuehold).
func (c *Controller) RequeueHold(now time.Time, id sbatch.JobID) error {
	if err := c.Requeue(now, id); err != nil {
		return err
	}
	j := c.jobByID(id)
	if j.requeuing {
		j.holding = true
	} else {
		j.held, j.reason = true, requeuedHeld
	}
	return nil
}

// Signal sends TERM to the batch script of a running job, and changes nothing else (scancel --batch --signal=TERM).
func (c *Controller) Signal(now time.Time, id sbatch.JobID) bool {
	j := c.change(now, id, sbatch.StateRunning)
	if j == nil {
		return false
	}
	c.order(Terminate, j)
	return true
}
