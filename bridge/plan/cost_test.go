package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// after returns a time some seconds after epoch.
func after(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// costly returns a run that was staged for 20 s, waited in Slurm until 90 s, and began at 92 s.
func costly(r *plan.Row) {
	r.Resources.GPUs = 2
	r.Spent.StagedAt, r.SubmittedAt = after(20), after(30)
	r.Job.Start = after(90)
	r.Begun.At = after(92)
}

func TestRunTellsItsCostSoFar(t *testing.T) {
	t.Parallel()
	r := rowIn(plan.Running)
	costly(&r)
	r.Status = &spool.Status{At: after(150), Usage: spool.Usage{GPU: spool.GPUUsage{BusyMean: .25, MemoryPeak: 1 << 30, Samples: 3}}}
	want := &codalab.Cost{StagingSeconds: 20, QueuedSeconds: 60, AllocatedSeconds: 60, Attempts: 1, GPUs: &codalab.GPUUse{Busy: .25, MemoryMax: 1 << 30}}
	if diff := cmp.Diff(want, r.Report("w").Cost); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Slurm shows an expected start for a job that waits, and that of an earlier run for a job that was requeued.
func TestCostIsOfTheJobsOwnStart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*plan.Row)
		want   float64 // allocated until 150 s
	}{
		"as Slurm shows it":        {func(*plan.Row) {}, 60},
		"not seen running yet":     {func(r *plan.Row) { r.Job.State, r.Job.Nodes, r.Job.Start = sbatch.StatePending, "", after(5000) }, 58},
		"never seen":               {func(r *plan.Row) { r.Job.Start = time.Time{} }, 58},
		"of the run before":        {func(r *plan.Row) { r.Job.Start = after(-900) }, 58},
		"by a clock that is ahead": {func(r *plan.Row) { r.Job.Start = after(100) }, 58},
	} {
		r := rowIn(plan.Running)
		costly(&r)
		r.Status = &spool.Status{At: after(150)}
		test.change(&r)
		if got := r.Report("w").Cost.AllocatedSeconds; got != test.want {
			t.Errorf("%s: allocated for %v s, want %v", name, got, test.want)
		}
	}
}

func TestEndedAttemptIsCharged(t *testing.T) {
	t.Parallel()
	end := exit(0)
	end.At, end.CommandStarted, end.CommandEnded = after(190), after(95), after(185)
	end.Usage = spool.Usage{UserSeconds: 80, MemoryPeak: 1 << 30}
	b := given(t, rowIn(plan.Running), costly).at(200 * time.Second).decide(read(200*time.Second, started(), end))
	got, ok := b.row.Charge()
	want := plan.Charge{
		Generation: 1, Attempt: 1, Job: 7, Node: "n1", Submitted: after(30), Start: after(90), End: after(190),
		CommandSeconds: 90, Usage: end.Usage, Cause: spool.CauseSucceeded,
	}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("charged %v (-want +got):\n%s", ok, diff)
	}
	if got.Queued() != time.Minute || got.Allocated() != 100*time.Second {
		t.Errorf("queued for %s, allocated for %s", got.Queued(), got.Allocated())
	}
}

// The record of the end may be from an older worker, or there is none.
func TestEndWithoutATimeIsWhenSlurmLostTheJob(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Running), costly).at(200 * time.Second).decide(read(200*time.Second, started(), exit(0)))
	if c, _ := b.row.Charge(); !c.End.Equal(after(200)) {
		t.Errorf("an end without a time is at %s", c.End)
	}
	b = given(t, rowIn(plan.Running), costly)
	b.at(200 * time.Second).decide(seen(200*time.Second, job(sbatch.StateOutOfMemory)))
	b.at(300 * time.Second).decide(read(300*time.Second, started(), nil))
	if c, ok := b.row.Charge(); !ok || !c.End.Equal(after(200)) || c.Cause != spool.CauseLimit {
		t.Errorf("in %s (%s) charged %v %+v", b.row.Phase, b.row.Reason, ok, c)
	}
}

func TestJobThatNeverStartedCostsNothing(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Queued)).decide(told(kill))
	b.at(time.Minute).decide(fencing(spool.Started{Fenced: true}))
	if c, ok := b.row.Charge(); ok {
		t.Errorf("in %s charged %+v", b.row.Phase, c)
	}
	if got := b.row.Report("w").Cost; got != nil && got.AllocatedSeconds != 0 {
		t.Errorf("cost %+v", got)
	}
}

// A bundle costs what all of its attempts cost.
func TestFailedAttemptsCostToo(t *testing.T) {
	t.Parallel()
	failed := &spool.Exit{Token: "token-1", Cause: spool.CausePlatform, NotStarted: true, Failure: "No disk.", At: after(100)}
	b := given(t, rowIn(plan.Running), costly, func(r *plan.Row) { r.CommandBegan, r.RunningAt = false, time.Time{} })
	b.at(110 * time.Second).decide(read(110*time.Second, started(), failed))
	if b.row.Phase != plan.Staging {
		t.Fatalf("phase %s (%s)", b.row.Phase, b.row.Reason)
	}
	if s := b.row.Spent; s.Queued != time.Minute || s.Allocated != 10*time.Second || s.Last == nil || s.Last.Job != 7 || s.Last.Cause != spool.CausePlatform {
		t.Errorf("spent %+v, last %+v", s, s.Last)
	}
	if _, ok := b.row.Charge(); ok {
		t.Error("the next attempt is charged already")
	}
	want := &codalab.Cost{StagingSeconds: 20, QueuedSeconds: 60, AllocatedSeconds: 10, Attempts: 1}
	if diff := cmp.Diff(want, b.row.Report("w").Cost); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
