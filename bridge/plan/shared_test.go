package plan_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// TestResultsGoWhereTheServerLastSaid: a claim may have come late, and the server may have given the bundle to the
// bridge a second time.
func TestResultsGoWhereTheServerLastSaid(t *testing.T) {
	t.Parallel()
	p := policy()
	for _, phase := range plan.Phases() {
		r := rowIn(phase)
		before, first, second := r.Run, "/store/1", "/store/2"
		for _, location := range []*string{&first, &second, nil} {
			m := offered()
			m.Bundle.Location = location
			r, _ = p.Next(epoch, r, plan.News{Messages: []codalab.Message{m}})
		}
		if r.Run.Location == nil || *r.Run.Location != second || r.Run.Command != before.Command {
			t.Errorf("%s: %+v", phase, r.Run)
		}
		if before.Location != nil {
			t.Errorf("%s: what rows share was changed", phase)
		}
	}
}

// A task is missing beside the others of its array, so it counts as cancelled while it waited. If its attempt turns out to have begun,
// the task was missing for another reason.
func TestI3TaskThatBeganWasNotCancelledWhileItWaited(t *testing.T) {
	t.Parallel()
	cancelled := job(sbatch.StateCancelled)
	cancelled.ID, cancelled.Nodes = sbatch.JobID(7).Task(1), ""
	began := &spool.Started{Token: "token-1", Node: "n1", Job: "7_1", Submission: "b1b2b3.1", At: epoch}
	b := given(t, rowIn(plan.Queued), func(r *plan.Row) {
		r.Shared, r.Index, r.Job = true, 1, cancelled
		r.Job.State = sbatch.StatePending
	})
	b.at(late).decide(seen(late, cancelled)).is(plan.Queued, plan.ReadRecords)
	b.at(late+time.Second).decide(read(late+time.Second, began, exit(0))).is(plan.Collecting, plan.Collect)

	b = given(t, rowIn(plan.Queued), func(r *plan.Row) {
		r.Shared, r.Index, r.Job = true, 1, cancelled
		r.NoJobSince = epoch
	})
	b.at(time.Hour).decide(read(time.Hour, began, nil)).is(plan.Running, plan.QueryAccounting)
	b.decide(plan.News{Accounting: observation(time.Hour)}).is(plan.Collecting, plan.Collect)
	b.verdict(spool.CausePlatform, "last seen PENDING")
}

// The database missed the end of the ghost that Slurm left when it refused a pack, and somebody has removed the records of a
// member that has to end. Each decision on the member hears of the refusal, and its wait for the database goes on all the same.
func TestKilledMemberOfARefusedPackDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	for _, place := range []plan.Place{{State: plan.Refused, Closed: true}, {State: plan.Refused, Left: true}} {
		b := given(t, rowIn(plan.Submitting), func(r *plan.Row) {
			r.Phase, r.StopVerdict = plan.Stopping, &plan.Verdict{Cause: spool.CauseUser, Failure: codalab.KillRequested}
			r.Shared, r.Pack, r.Fenced, r.RecordsGoneSince = true, true, true, epoch
		})
		pending := func() plan.News {
			return plan.News{Submission: &place, Accounting: observation(b.now.Sub(epoch), job(sbatch.StatePending))}
		}
		b.decide(pending()).is(plan.Stopping)
		b.at(b.policy.RecordAge).decide(pending()).is(plan.Stopping)
		b.at(b.policy.RecordAge + time.Second).decide(pending()).is(plan.Finalizing)
		b.verdict(spool.CauseUser, codalab.KillRequested)
	}
}
