package canary_test

import (
	"context"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/canary"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// asked notes the job that it was asked about.
type asked struct{ request sbatch.Request }

func (a *asked) Try(_ context.Context, r sbatch.Request) error {
	a.request = r
	return nil
}

func TestPackIsTriedAsWideAndAsLongAsTheQueueMakesIt(t *testing.T) {
	t.Parallel()
	q := plan.Queue{PackRuns: 100, PackSideBySide: 8, PackTime: time.Hour, MemoryOverhead: 64 << 20}
	for width, nodes := range map[int64]sbatch.NodeSizes{8: nil, 3: {{CPUs: 3, Memory: 1 << 40, GPUs: 8}, {CPUs: 1, Memory: 1 << 40, GPUs: 8}}, 1: {{CPUs: 64, Memory: 1 << 40, GPUs: 1}}} {
		q.Nodes = nodes
		var a asked
		if err := canary.AskPack(t.Context(), &a, q, 1); err != nil {
			t.Fatal(err)
		}
		if r := a.request; r.CPUs != width || r.GPUs != width || r.MemoryMiB != width*(512+64) || r.Time != time.Hour {
			t.Errorf("width %d: asked for %d CPUs, %d GPUs, %d MiB, %s", width, r.CPUs, r.GPUs, r.MemoryMiB, r.Time)
		}
	}
}
