package plan_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestIdleGPUsAreNamed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		idle  int
		since int // minutes
		of    int64
		want  string
	}{
		{1, 12, 1, " 0 % of 1 GPU used for 12 minutes."},
		{2, 119, 2, " 0 % of 2 GPUs used for 119 minutes."},
		{3, 3, 4, " 0 % of 3 of its 4 GPUs used for 3 minutes."},
		{1, 150, 1, " 0 % of 1 GPU used for 2 hours."},
		{0, 0, 1, ""},
	} {
		r := rowIn(plan.Running)
		r.Resources.GPUs = test.of
		u := spool.GPUUsage{Samples: 9, Idle: test.idle}
		if test.idle > 0 {
			u.IdleSince = epoch
		}
		r.Status = &spool.Status{Stage: spool.StageRunning, At: epoch.Add(time.Duration(test.since) * time.Minute), Usage: spool.Usage{GPU: u}}
		if got := r.RunStatus(); got != "Running job in container (Slurm job 7)."+test.want {
			t.Errorf("%q", got)
		}
		r.Exit = exit(0)
		if got := r.RunStatus(); got != "Running job in container (Slurm job 7)." {
			t.Errorf("after its end: %q", got)
		}
	}
}
