package plan_test

import (
	"fmt"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// A bridge with an old copy of its ledger submits an attempt again that runs already, under a higher number. The end
// of the job that took the attempt counts, not the end of the late one.
func TestI7EndOfTheSecondJobIsNotTheAttempts(t *testing.T) {
	t.Parallel()
	numbered := func(id sbatch.JobID, state sbatch.State, generation int) sbatch.Job {
		return sbatch.Job{
			ID: id, Name: string(submission), State: state, Reason: "None", Nodes: "n1",
			Comment: fmt.Sprintf("codalab bundle=%s attempt=1 owner=1 bridge=b1b2b3 generation=%d", uuid, generation),
		}
	}
	first, second := numbered(7, sbatch.StateRunning, 2), numbered(9, sbatch.StateFailed, 3)
	r := rowIn(plan.Running)
	r.Generation, r.Job, r.Begun = 3, second, &spool.Started{Token: "worker-1", Node: "n1", Job: "7"}
	b := given(t, r).at(early).decide(seen(early, first, second)).is(plan.Running)
	if b.row.Job.ID != 7 || !b.row.NoJobSince.IsZero() {
		t.Errorf("job %s, ended %s; want 7, which runs", b.row.Job.ID, b.row.NoJobSince)
	}
	first.State = sbatch.StateCancelled
	b.at(late).decide(seen(late, first, second)).is(plan.Running, plan.ReadRecords)
	if b.row.Job.State != sbatch.StateCancelled {
		t.Errorf("job %s is %s, want CANCELLED", b.row.Job.ID, b.row.Job.State)
	}
}
