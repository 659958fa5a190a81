package plan_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// The doorbell brings the begin before the next snapshot. The job of the last one was still pending.
func TestRunThatBeganAfterTheSnapshotIsNotCalledRequeued(t *testing.T) {
	t.Parallel()
	r := rowIn(plan.Running)
	r.Begun, r.Exit, r.CommandBegan = started(), nil, true
	const back = "Slurm has put the run's job 7 back into the queue (PENDING); the bundle does not run a second time in it."
	for name, c := range map[string]struct {
		submitted time.Time
		requeued  bool
		want      string
	}{
		"an older snapshot":              {epoch.Add(-time.Second), false, "Running job in container (Slurm job 7)."},
		"a requeue seconds after":        {epoch.Add(5 * time.Second), false, back},
		"a requeue that is proved":       {epoch.Add(5 * time.Minute), true, back},
		"proved, and the time is a lie":  {epoch.Add(-time.Hour), true, back},
		"a snapshot without that moment": {time.Time{}, false, "Running job in container (Slurm job 7)."},
	} {
		r.Job = job(sbatch.StatePending)
		r.Job.Submitted, r.Requeued = c.submitted, c.requeued
		if got := r.RunStatus(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// An administrator puts the job of a run back into the queue and holds it, and then the controller loses its state. The
// run ends like any other whose job is gone, so that it may begin again (SEED=913835).
func TestI3HeldJobThatIsGoneIsNotStopped(t *testing.T) {
	t.Parallel()
	held := job(sbatch.StatePending)
	held.Reason = "job requeued in held state"
	b := given(t, rowIn(plan.Running))
	q := b.policy.Queues["cpu"]
	q.RetryBegun = plan.RetryOnPlatform
	b.policy.Queues["cpu"], b.policy.RecordAge = q, 20*time.Minute
	b.at(late).decide(seen(late, held)).is(plan.Running)
	gone := late + 5*time.Minute
	b.at(gone).decide(seen(gone)).is(plan.Running, plan.ReadRecords)
	for at := gone; at < gone+15*time.Minute; at += time.Minute {
		b.at(at).decide(seen(at)).decide(read(at, started(), nil)).decide(accounted(at, job(sbatch.StateRequeued)))
		if b.row.Phase != plan.Running {
			t.Fatalf("%s: %s, want that the bridge still asks for the job's end", b.row.Phase, b.row.Reason)
		}
	}
	at := gone + 21*time.Minute
	b.at(at).decide(seen(at)).decide(accounted(at, job(sbatch.StateRequeued))).is(plan.Staging)
}

// An administrator puts a pack back into the queue, and cancels it before it has completed. squeue shows it as cancelled, with the times of
// the run that the requeue has ended. The accounting database has no other end of that run than the requeue (SEED=3400141536).
func TestI3PackThatIsCancelledInItsRequeueWasPutBack(t *testing.T) {
	t.Parallel()
	shown, requeued := job(sbatch.StateCancelled), job(sbatch.StateRequeued)
	shown.Start, requeued.Start = epoch, epoch
	earlier := requeued
	earlier.Start = epoch.Add(-time.Hour)
	end := func(accounted sbatch.Job) *bench {
		b := given(t, rowIn(plan.Running), func(r *plan.Row) { r.Begun, r.Exit, r.Shared, r.Pack = started(), nil, true, true })
		b.at(late).decide(seen(late, shown)).is(plan.Running, plan.ReadRecords)
		at := late + time.Minute
		b.at(at).decide(read(at, started(), nil)).is(plan.Running, plan.QueryAccounting)
		return b.decide(plan.News{Accounting: observation(at, accounted)})
	}
	end(requeued).is(plan.Collecting, plan.Collect).verdict(spool.CausePlatform, "was put back into the queue while it ran on n1")
	end(earlier).is(plan.Running) // the database does not show the last run yet
}

// A member that the requeue of its pack has ended pays for its time until then, not for the pack's later runs: until the requeue, or until
// the last record of its worker. Slurm's times are whole seconds, so the requeue may seem to come before the begin (SEED=4200076499).
func TestMemberOfARequeuedPackPaysForItsOwnRun(t *testing.T) {
	t.Parallel()
	begun := started()
	begun.At = after(90)
	for name, c := range map[string]struct {
		submitted time.Time
		status    *spool.Status
		end       time.Time
	}{
		"a requeue that is shown":              {after(100), nil, after(100)},
		"a requeue in the second of the begin": {after(90), nil, after(90)},
		"a status":                             {after(90), &spool.Status{At: after(95)}, after(95)},
	} {
		shown, requeued := job(sbatch.StateCancelled), job(sbatch.StateRequeued)
		shown.Submitted, shown.Start, requeued.Start = c.submitted, epoch, epoch
		b := given(t, rowIn(plan.Running), func(r *plan.Row) { r.Begun, r.Status, r.Exit, r.Shared, r.Pack = begun, c.status, nil, true, true })
		b.at(late).decide(seen(late, shown))
		at := late + time.Minute
		b.at(at).decide(read(at, begun, nil)).decide(plan.News{Accounting: observation(at, requeued)})
		if got, ok := b.row.Charge(); !ok || !got.End.Equal(c.end) || !got.Start.Equal(begun.At) {
			t.Errorf("%s: in %s (%s) charged %v from %s to %s, want to %s", name, b.row.Phase, b.row.Reason, ok, got.Start, got.End, c.end)
		}
	}
}
