package bridge

import (
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// shownJobs are the jobs of the newest snapshot of Slurm. Only Step uses them.
type shownJobs struct {
	observed  bool // Slurm has been seen as a whole since the start
	asked     time.Time
	submitted map[sbatch.JobID]time.Time // by the id of a shown job
	orphans   plan.OrphanJobs
}

// note notes a snapshot, and the orphan jobs in it.
func (s *shownJobs) note(snapshot sbatch.Snapshot, orphans plan.OrphanJobs) {
	s.orphans, s.observed, s.asked = orphans, true, snapshot.Asked
	s.submitted = make(map[sbatch.JobID]time.Time, len(snapshot.Jobs))
	for _, j := range snapshot.Jobs {
		s.submitted[j.ID] = j.Submitted
	}
}

// has reports whether the snapshot shows a job of that id.
func (s *shownJobs) has(id sbatch.JobID) bool {
	_, ok := s.submitted[id]
	return ok
}

// fresh is the greatest age of the snapshot by which jobs are cancelled. Slurm does not give an id to
// another job so soon.
const fresh = 30 * time.Second

// isFresh reports whether jobs may be cancelled by the snapshot.
func (s *shownJobs) isFresh(now time.Time) bool { return now.Sub(s.asked) <= fresh }

// mayBeAnothers reports whether the job of a row's id may be another's: a controller that has lost its
// state uses ids again. It may be if the snapshot shows a job of that id that was submitted at
// another time, or shows none and is late enough to prove that the row's is gone, or if another row has
// the job. It may also be if the row has the id from a worker's record alone: had the row taken the job
// that the snapshot shows for its own, it would have the time of submission.
func (s *shownJobs) mayBeAnothers(r *plan.Row, others *rows, grace time.Duration) bool {
	submitted, ok := s.submitted[r.Job.ID]
	switch {
	case ok && !submitted.Equal(r.Job.Submitted):
		return true
	case !ok && s.asked.After(r.SubmittedAt.Add(grace)):
		return true
	}
	return others.otherHasJob(r)
}
