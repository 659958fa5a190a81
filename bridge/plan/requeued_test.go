package plan_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
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
