package plan_test

import (
	"fmt"
	"testing"
	"time"

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

// An old copy of the ledger knows an attempt as one with a job of its own, and finds its pack by the name: the number of the submission is
// given a second time, and an administrator has rewritten the pack's comment. The time limit of the pack is not the member's, so its worker
// is not told of it.
func TestOldLedgerTellsNoMemberTheTimeLimitOfItsPack(t *testing.T) {
	t.Parallel()
	pack := sbatch.Job{ID: 7, Name: string(submission), State: sbatch.StateRunning, Reason: "None", Nodes: "n1", TimeLimit: 23 * time.Minute}
	begun := &spool.Started{Token: "worker-1", Node: "n1", Job: "7", Submission: "b1b2b3.1"}
	r := rowIn(plan.Submitting)
	r.TimeLimits = plan.TimeLimits{First: 12 * time.Minute, Now: 12 * time.Minute, Told: 12 * time.Minute}
	b := given(t, r).at(early).decide(seen(early, pack)).is(plan.Queued, plan.ReadRecords)
	news := read(early, begun, nil)
	news.Observation = observation(early, pack)
	b.decide(news).is(plan.Running)
	b.decide(seen(early, pack)).is(plan.Running)
	if !b.row.Pack || b.row.TimeLimits != (plan.TimeLimits{}) {
		t.Errorf("a member of a pack: %t, with the time limits %+v", b.row.Pack, b.row.TimeLimits)
	}

	alone := given(t, rowIn(plan.Queued), func(r *plan.Row) { // it shows a change of the limit before the record of the start
		r.Job, r.TimeLimits = pack, plan.TimeLimits{First: 12 * time.Minute, Now: 23 * time.Minute, Told: 12 * time.Minute}
	})
	alone.at(early).decide(read(early, begun, nil)).is(plan.Running)
	alone.decide(seen(early, pack)).is(plan.Running)
}
