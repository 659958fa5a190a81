package plan

import (
	"cmp"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Spent is the cost of a row apart from its current attempt.
type Spent struct {
	// StagedAt is the time at which the image and the inputs were first ready; zero before.
	StagedAt time.Time `json:"staged_at,omitzero"`
	// Queued is the time for which the jobs of earlier attempts waited in Slurm, and Allocated the time for which
	// they had their resources.
	Queued    time.Duration `json:"queued,omitempty"`
	Allocated time.Duration `json:"allocated,omitempty"`
	// CommandSeconds is the time for which the commands of earlier attempts ran, UserSeconds and SystemSeconds the
	// processor time that they used.
	CommandSeconds float64 `json:"command_seconds,omitempty"`
	UserSeconds    float64 `json:"user_seconds,omitempty"`
	SystemSeconds  float64 `json:"system_seconds,omitempty"`
	// Last is the attempt before the current one; nil if it had no job that started.
	Last *Charge `json:"last,omitempty"`
}

// Charge is the cost of one attempt whose job has started and ended.
type Charge struct {
	// Generation is the attempt's own number among all attempts of all rows.
	Generation int64        `json:"generation"`
	Attempt    int          `json:"attempt"`
	Job        sbatch.JobID `json:"job,omitempty"`
	// Pack is set if the job is one of a pack.
	Pack bool   `json:"pack,omitempty"`
	Node string `json:"node,omitempty"`
	// Submitted is the time of sbatch. Start and End are the times of the job as far as the bridge knows them, and in a pack those of the
	// attempt.
	Submitted time.Time `json:"submitted"`
	Start     time.Time `json:"start"`
	End       time.Time `json:"end"`
	// CommandSeconds is the time for which the command ran.
	CommandSeconds float64     `json:"command_seconds,omitempty"`
	Usage          spool.Usage `json:"usage,omitzero"`
	// Cause is the cause of the attempt's end.
	Cause spool.Cause `json:"cause,omitempty"`
}

// Queued returns the time for which the job waited.
func (c Charge) Queued() time.Duration { return max(0, c.Start.Sub(c.Submitted)) }

// Allocated returns the time for which the job had its resources.
func (c Charge) Allocated() time.Duration { return max(0, c.End.Sub(c.Start)) }

// startSlack is the longest time from the start of a job to the start of its worker that a bridge believes: a longer
// one is a difference of the clocks, or the start of an earlier run of a job that was requeued.
const startSlack = 10 * time.Minute

// startOfJob returns the start of the attempt's job; zero if none is known. Slurm shows it in whole seconds, and shows
// an expected one for a job that waits. The worker begins soon after it.
func (r Row) startOfJob() time.Time {
	shown := r.Job.Start
	if r.Job.State == sbatch.StatePending || r.Job.Nodes == "" {
		shown = time.Time{}
	}
	switch {
	case r.Pack && r.Begun == nil:
		return time.Time{}
	case r.Pack: // the job's other time is that of other members
		return r.Begun.At
	case r.Begun == nil:
		return shown
	}
	if begun := r.Begun.At; shown.IsZero() || shown.After(begun) || begun.Sub(shown) > startSlack {
		return begun
	}
	return shown
}

// noteEndOfJob notes the end of the attempt's job, once.
func (d *decision) noteEndOfJob() {
	if !d.row.EndedAt.IsZero() {
		return
	}
	var recorded time.Time
	if d.row.Exit != nil {
		recorded = d.row.Exit.At
	}
	d.row.EndedAt = cmp.Or(recorded, d.row.endOfLostRun(), d.row.NoJobSince, d.now)
}

// endOfLostRun returns the end of a member that the later runs of its pack have left behind: the time of the requeue, as far as Slurm shows
// it, in whole seconds, or that of the worker's last record. It is zero for other rows.
func (r Row) endOfLostRun() time.Time {
	switch {
	case !r.Pack || !r.Requeued || r.Begun == nil:
		return time.Time{}
	case r.Job.Submitted.After(r.Begun.At):
		return r.Job.Submitted
	case r.Status != nil:
		return r.Status.At
	}
	return r.Begun.At
}

// noteCost adds the cost of an attempt that is given up to that of the earlier ones.
func (d *decision) noteCost() {
	d.noteEndOfJob()
	c, ok := d.row.Charge()
	if !ok {
		d.row.Spent.Last = nil
		return
	}
	s := &d.row.Spent
	s.Queued, s.Allocated, s.Last = s.Queued+c.Queued(), s.Allocated+c.Allocated(), &c
	s.CommandSeconds += c.CommandSeconds
	s.UserSeconds += c.Usage.UserSeconds
	s.SystemSeconds += c.Usage.SystemSeconds
}

// Charge returns the cost of the current attempt once it is concluded. It returns false if the attempt had no job that
// started.
func (r Row) Charge() (Charge, bool) {
	start := r.startOfJob()
	if r.EndedAt.IsZero() || start.IsZero() {
		return Charge{}, false
	}
	c := Charge{
		Generation: r.Generation, Attempt: r.Attempt.Number, Job: r.Job.ID, Pack: r.Pack, Node: r.Node(),
		Submitted: r.SubmittedAt, Start: start, End: r.EndedAt,
	}
	switch {
	case r.Exit != nil:
		c.Usage, c.Cause = r.Exit.Usage, r.Exit.Cause
		c.CommandSeconds = elapsed(r.Exit.CommandStarted, r.Exit.CommandEnded)
	case r.Status != nil:
		c.Usage = r.Status.Usage
		c.CommandSeconds = elapsed(r.Status.CommandStarted, r.EndedAt)
	}
	if r.Verdict != nil {
		c.Cause = r.Verdict.Cause
	}
	return c, true
}

// cost returns the row's cost so far, for a report.
func (r Row) cost() *codalab.Cost {
	spent := r.Spent
	if spent.StagedAt.IsZero() {
		return nil
	}
	c := codalab.Cost{StagingSeconds: spent.StagedAt.Sub(r.OfferedAt).Seconds(), Attempts: r.Attempt.Number}
	var used spool.Usage
	if start := r.startOfJob(); !start.IsZero() {
		end := r.EndedAt
		if r.Status != nil {
			end, used = cmp.Or(end, r.Status.At), r.Status.Usage
		}
		if r.Exit != nil {
			used = r.Exit.Usage
		}
		spent.Queued += max(0, start.Sub(r.SubmittedAt))
		spent.Allocated += max(0, cmp.Or(end, start).Sub(start))
	}
	c.QueuedSeconds, c.AllocatedSeconds = spent.Queued.Seconds(), spent.Allocated.Seconds()
	if g := used.GPU; g.Samples > 0 {
		c.GPUs = &codalab.GPUUse{Busy: g.BusyMean, MemoryMax: g.MemoryPeak}
	}
	return &c
}
