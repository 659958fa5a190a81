package canary_test

import (
	"context"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/canary"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// picky accepts no job without a GPU.
type picky struct{}

func (picky) Try(_ context.Context, r sbatch.Request) error {
	if r.GPUs == 0 {
		return slurmtest.SubmitError(r.Name, "sbatch: error: Batch job submission failed: Unspecified error", 1)
	}
	return nil
}

func TestPartitionThatTakesNoJobWithoutGPUsIsTriedWithOne(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, slurmtest.NewSite())
	for name, want := range map[string]int64{"picky": 1, "cpu": 0, "nosuch": -1} {
		var gpus int64
		var err error
		if name == "picky" {
			gpus, err = canary.Ask(t.Context(), picky{}, plan.Queue{})
		} else {
			gpus, err = canary.Ask(t.Context(), k, plan.Queue{Partition: name})
		}
		if err != nil {
			gpus = -1
		}
		if gpus != want {
			t.Errorf("%s: %d GPUs, %v", name, gpus, err)
		}
	}
}
