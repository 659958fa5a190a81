package codalab_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Any user may run workers, and a server shows what they report, adds it up, and sends it as JSON.
func TestImpossibleCostsAreNotShown(t *testing.T) {
	t.Parallel()
	for _, n := range []float64{math.NaN(), math.Inf(-1), -1} {
		c := codalab.Cost{StagingSeconds: n, QueuedSeconds: n, AllocatedSeconds: n, Attempts: -1, GPUs: &codalab.GPUUse{Busy: n, MemoryMax: -1}}
		if diff := cmp.Diff(codalab.Cost{GPUs: &codalab.GPUUse{}}, c.Bounded()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", n, diff)
		}
	}
	huge := codalab.Cost{AllocatedSeconds: math.Inf(1), Attempts: math.MaxInt, GPUs: &codalab.GPUUse{Busy: 17, MemoryMax: math.MaxInt64}}
	got := huge.Bounded()
	if _, err := json.Marshal(got); err != nil || got.GPUs.Busy != 1 || huge.GPUs.Busy != 17 {
		t.Errorf("%v: %+v", err, got)
	}
}
