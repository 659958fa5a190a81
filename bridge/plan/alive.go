package plan

import (
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// applyStatus applies a status record of the attempt's worker.
//
// A record that differs from the last one was written since, and so may be the first one that a restarted bridge reads. If
// squeue does not show the job, the worker's word counts: a wrapper of the site may cut squeue's answer short or take it from
// a cache, and a backup controller may not know the job yet. The next snapshot that lacks the job begins its absence anew.
func (d *decision) applyStatus(s spool.Status) {
	r := &d.row
	isNew := r.Status == nil || !s.At.Equal(r.Status.At)
	r.Status = &s
	if isNew && d.mayLive() {
		r.NoJobSince = time.Time{}
	}
	if !s.CommandStarted.IsZero() {
		d.noteCommand()
	}
}

// silentFor is the age at which a status record shows that its worker has ended. It is longer than two pauses between
// records and the largest difference of the clocks of a node and of the bridge's host with which munge lets a job start.
const silentFor = 10 * time.Minute

// mayLive reports whether the attempt's worker may live although Slurm does not show its job: it has written a status
// record lately, or it has begun lately and the disk has not shown its first status record yet.
func (d *decision) mayLive() bool {
	r := &d.row
	switch {
	case r.Begun == nil:
		return false
	case r.Status != nil:
		return d.livesUnseen(r.Status.At)
	}
	return !r.CommandBegan && d.livesUnseen(r.Begun.At) // once the command has begun there is a status, and a restarted bridge reads it
}

// livesUnseen reports whether the attempt's worker, which wrote a record at a time, may live although Slurm does not show its
// job: Slurm has not shown the job's end either. A job that another cluster took has its own patience.
func (d *decision) livesUnseen(wrote time.Time) bool {
	r := &d.row
	return r.Exit == nil && d.now.Sub(wrote) < silentFor &&
		!r.NoJobSince.IsZero() && !r.Job.State.Ended() && r.RevokedSince.IsZero() && !r.Standalone
}

// endsOneRun reports whether Slurm may start a pack again after a run with this end. The accounting database shows that end before it shows
// the next run, and a member that begins then may be of the next run.
func endsOneRun(s sbatch.State) bool {
	return s == sbatch.StateNodeFail || s == sbatch.StateBootFail || s == sbatch.StatePreempted
}
