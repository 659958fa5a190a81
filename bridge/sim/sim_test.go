package sim_test

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/ledger/ledgertest"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sim"
)

// TestSeedsKeepAllPromises runs other seeds than the benchmark does. `make sim` runs as many as one has patience for.
func TestSeedsKeepAllPromises(t *testing.T) {
	t.Parallel()
	seeds := uint64(4000)
	if testing.Short() {
		seeds = 400
	}
	const first = 5_000_000
	struck := make([]map[sim.Kind]bool, 2)
	var wg sync.WaitGroup
	for half := range struck {
		struck[half] = map[sim.Kind]bool{}
		wg.Go(func() {
			for seed := first + uint64(half); seed < first+seeds && !t.Failed(); seed += uint64(len(struck)) {
				r, err := sim.Run(t.Context(), seed, sim.Options{})
				if err != nil {
					t.Error(err)
				}
				if len(r.Violations) > 0 {
					least := sim.Shrink(t.Context(), r)
					t.Errorf("%+v\nrepeat: make sim SEED=%d ONLY=%s", least.Violations[0], seed, sim.FormatFaults(least.Faults))
				}
				for _, f := range r.Faults {
					struck[half][f.Kind] = true
				}
			}
		})
	}
	wg.Wait()
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
		first, err := sim.Run(t.Context(), seed, sim.Options{Log: &one})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sim.Run(t.Context(), seed, sim.Options{Log: &two}); err != nil {
			t.Fatal(err)
		}
		if one.Len() == 0 || !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Errorf("seed %d goes two ways", seed)
		}
		again, err := sim.Run(t.Context(), seed, sim.Options{Only: first.Faults})
		if err != nil || !slices.Equal(again.Faults, first.Faults) || again.Steps != first.Steps {
			t.Errorf("seed %d goes another way with its own faults given: %v", seed, err)
		}
	}
}

// TestWrongAssumptionIsFoundAndShrunk sets a bridge up for a disk that shows
// records at once, which this one does not.
func TestWrongAssumptionIsFoundAndShrunk(t *testing.T) {
	t.Parallel()
	hasty := func(p *plan.Policy) { p.Settle = 0 }
	for seed := uint64(1); seed < 3000; seed++ {
		r, err := sim.Run(t.Context(), seed, sim.Options{Policy: hasty})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Violations) == 0 {
			continue
		}
		least := sim.ShrinkWith(t.Context(), r, sim.Options{Policy: hasty})
		if !slices.ContainsFunc(least.Faults, func(f sim.Fault) bool { return f.Kind == sim.RecordLate }) {
			t.Errorf("seed %d: %s from %s, want a late record among them", seed, sim.FormatFaults(least.Faults), sim.FormatFaults(r.Faults))
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

// TestSeedsOnARealLedger runs seeds with SQLite beside the ledger in memory:
// rows are read from it after each restart.
func TestSeedsOnARealLedger(t *testing.T) {
	t.Parallel()
	seeds := uint64(30)
	if testing.Short() {
		seeds = 5
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		where := filepath.Join(t.TempDir(), "ledger.db")
		var opened []*ledger.Ledger
		open := func() (sim.Ledger, error) {
			l, err := ledger.Open(t.Context(), where)
			if err == nil {
				opened = append(opened, l)
			}
			return l, err
		}
		r, err := sim.Run(t.Context(), seed, sim.Options{Ledger: open})
		if err != nil || len(r.Violations) > 0 {
			t.Errorf("seed %d: %v, %v", seed, r.Violations, err)
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

func TestLedgerInMemoryIsOne(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(testing.TB) ledgertest.Site {
		store, mu := sim.NewStore(), &sync.Mutex{}
		return ledgertest.Site{Open: func(testing.TB) ledgertest.Ledger { return &locked{mu, sim.Memory{Store: store}} }}
	})
}

// locked is a ledger in memory that several may use at once, which the
// simulation does not need.
type locked struct {
	mu     *sync.Mutex
	memory sim.Memory
}

func (l *locked) Take(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.memory.Take(ctx)
}

func (l *locked) Rows(ctx context.Context) ([]plan.Row, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.memory.Rows(ctx)
}

func (l *locked) Generation(ctx context.Context) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.memory.Generation(ctx)
}

func (l *locked) Save(ctx context.Context, rows []plan.Row) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.memory.Save(ctx, rows)
}

func (l *locked) Delete(ctx context.Context, r plan.Row) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.memory.Delete(ctx, r)
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
