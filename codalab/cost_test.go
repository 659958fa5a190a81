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
		c := codalab.Cost{StagingSeconds: n, QueuedSeconds: n, AllocatedSeconds: n, Attempts: -1, EnergyJoules: -1, GPUs: &codalab.GPUUse{Busy: n, MemoryMax: -1}}
		if diff := cmp.Diff(codalab.Cost{GPUs: &codalab.GPUUse{}}, c.Bounded()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", n, diff)
		}
	}
	huge := codalab.Cost{AllocatedSeconds: math.Inf(1), Attempts: math.MaxInt, EnergyJoules: math.MaxInt64, GPUs: &codalab.GPUUse{Busy: 17, MemoryMax: math.MaxInt64}}
	got := huge.Bounded()
	if _, err := json.Marshal(got); err != nil || got.GPUs.Busy != 1 || got.EnergyJoules != 1<<50 || huge.GPUs.Busy != 17 {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestEnergyIsPrintedForPeople(t *testing.T) {
	t.Parallel()
	for joules, want := range map[int64]string{1: "1 J", 3599: "3599 J", 3600: "1.0 Wh", 1_800_000: "500.0 Wh", 3_600_000: "1.00 kWh", 1 << 50: "312749974.12 kWh"} {
		if got := codalab.FormatEnergy(joules); got != want {
			t.Errorf("%d J: %q, want %q", joules, got, want)
		}
	}
}
