package sim_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sim"
)

// TestSeedsKeepAllPromises runs other seeds than the benchmark does. `make sim` runs more.
func TestSeedsKeepAllPromises(t *testing.T) {
	t.Parallel()
	seeds := uint64(4000)
	if testing.Short() {
		seeds = 400
	}
	const first = 5_000_000
	struck := make([]map[sim.Kind]bool, 2)
	var packed, stops [2]int
	var wg sync.WaitGroup
	for half := range struck {
		struck[half] = map[sim.Kind]bool{}
		wg.Go(func() {
			for seed := first + uint64(half); seed < first+seeds && !t.Failed(); seed += uint64(len(struck)) {
				r := sim.Run(t.Context(), seed, sim.Options{})
				if len(r.Violations) > 0 {
					least := sim.Shrink(t.Context(), r, sim.Options{})
					t.Errorf("%+v\nrepeat: make sim SEED=%d ONLY=%s", least.Violations[0], seed, sim.FormatFaults(least.Faults))
				}
				packed[half] += r.Packed
				stops[half] += r.Stops
				for _, f := range r.Faults {
					struck[half][f.Kind] = true
				}
			}
		})
	}
	wg.Wait()
	if packed[0]+packed[1] == 0 || stops[0]+stops[1] == 0 {
		t.Errorf("in %d seeds %d bundles were in packs, and %d of them were stopped", seeds, packed[0]+packed[1], stops[0]+stops[1])
	}
	for _, k := range sim.Kinds() {
		if !struck[0][k] && !struck[1][k] {
			t.Errorf("no fault of the kind %s struck in %d seeds", k, seeds)
		}
	}
}

func TestSeedGoesTheSameWayEachTime(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed < 40; seed++ {
		var one, two bytes.Buffer
		first := sim.Run(t.Context(), seed, sim.Options{Log: &one})
		sim.Run(t.Context(), seed, sim.Options{Log: &two})
		if one.Len() == 0 || !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Errorf("seed %d goes two ways", seed)
		}
		again := sim.Run(t.Context(), seed, sim.Options{Only: first.Faults})
		if !slices.Equal(again.Faults, first.Faults) || again.Steps != first.Steps {
			t.Errorf("seed %d goes another way with its own faults given", seed)
		}
	}
}

// TestWrongAssumptionIsFoundAndShrunk configures a bridge for a disk that shows records at once, which this
// disk does not.
func TestWrongAssumptionIsFoundAndShrunk(t *testing.T) {
	t.Parallel()
	hasty := func(p *plan.Policy) { p.Settle = 0 }
	for seed := uint64(1); seed < 3000; seed++ {
		r := sim.Run(t.Context(), seed, sim.Options{Policy: hasty})
		if len(r.Violations) == 0 {
			continue
		}
		least := sim.Shrink(t.Context(), r, sim.Options{Policy: hasty})
		if !slices.ContainsFunc(least.Faults, func(f sim.Fault) bool { return f.Kind == sim.RecordLate }) {
			continue // the assumption has other consequences: in seed 892 the database loses the end of a job
		}
		if v := least.Violations[0]; v.Broken != sim.FalseEnd && v.Broken != sim.BegunAgain {
			t.Errorf("seed %d breaks %s: %s", seed, v.Broken, v.Words)
		}
		if len(least.Faults) <= 4 {
			return
		}
	}
	t.Error("no seed shows in few faults that the disk is not given its time")
}

// TestSeedsOnARealLedger runs seeds with SQLite and the simulated ledger at once: both answer alike,
// and the bridge's rows come from SQLite after each restart.
func TestSeedsOnARealLedger(t *testing.T) {
	t.Parallel()
	seeds := uint64(30)
	if testing.Short() {
		seeds = 5
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		where := filepath.Join(t.TempDir(), "ledger.db")
		var opened []*ledger.Ledger
		open := func() (bridge.Ledger, error) {
			l, err := ledger.Open(t.Context(), where)
			if err == nil {
				opened = append(opened, l)
			}
			return l, err
		}
		r := sim.Run(t.Context(), seed, sim.Options{Ledger: open})
		if len(r.Violations) > 0 {
			t.Errorf("seed %d: %v", seed, r.Violations)
		}
		for _, l := range opened {
			rows, err := l.Rows(context.WithoutCancel(t.Context()))
			if err != nil || len(rows) > 0 {
				t.Errorf("seed %d leaves %d rows, %v", seed, len(rows), err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestFaultsAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	var all []sim.Fault
	for i, k := range sim.Kinds() {
		all = append(all, sim.Fault{Kind: k, N: uint32(i)})
	}
	back, err := sim.ParseFaults(sim.FormatFaults(all))
	if err != nil || !slices.Equal(back, all) {
		t.Errorf("%v, %v", back, err)
	}
	if back, err := sim.ParseFaults(sim.FormatFaults(nil)); err != nil || back == nil || len(back) > 0 {
		t.Errorf("no faults: %v, %v; want none, and not nil, which is all", back, err)
	}
	for _, bad := range []string{"crash", "crash.", "crash.x", "dance.3", "crash.-1"} {
		if _, err := sim.ParseFaults(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

func TestEachKindOfFaultIsInTheDocuments(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/contributors/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| where | kinds of faults |")
	for _, k := range sim.Kinds() {
		if !strings.Contains(table, "`"+k.String()+"`") {
			t.Errorf("the table of faults in reliability.md lacks %s", k)
		}
	}
}

// TestRivalsWithoutALeaseAreFound starts bridges with other ledgers, without the lease of the shared
// directory that would keep them from the first bridge.
func TestRivalsWithoutALeaseAreFound(t *testing.T) {
	t.Parallel()
	found := 0
	for seed := uint64(1); seed < 3000 && found < 3; seed++ {
		o := sim.Options{Only: []sim.Fault{{Kind: sim.Rival}}, Leases: t.TempDir(), Unleased: true}
		r := sim.Run(t.Context(), seed, o)
		if len(r.Violations) == 0 {
			continue
		}
		if found++; r.Violations[0].Broken != sim.Rivals {
			t.Errorf("seed %d: %+v", seed, r.Violations)
		}
		o.Unleased = false
		if r := sim.Run(t.Context(), seed, o); len(r.Violations) > 0 {
			t.Errorf("seed %d with a lease: %+v", seed, r.Violations)
		}
	}
	if found == 0 {
		t.Error("no seed shows what the lease is for")
	}
}
