package pins_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/pins"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestHoldersOfAnotherWorkerAreOverWhenItIsGone(t *testing.T) {
	t.Parallel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	own, other, missing := filepath.Join(dir, "own"), filepath.Join(dir, "other"), filepath.Join(dir, "missing")
	must(os.Mkdir(other, 0o700))
	_, err := lease.Acquire(t.Context(), spool.Layout(other).BridgeDir(), lease.Holder{Bridge: "b1b2b3"}, nil, nil)
	must(err)
	over := pins.HomesOver(own, func(_ context.Context, holders []cache.Holder) (map[cache.Holder]bool, error) {
		return map[cache.Holder]bool{holders[0]: true}, nil
	})
	for _, tt := range []struct {
		home   string
		holder cache.Holder
		want   bool
	}{
		{own, "row-0a0a0a" + bundle, true},
		{other, "row-b1b2b3" + bundle, false},
		{other, "row-c1c2c3" + bundle, true}, // of an earlier worker of the same name
		{missing, "row-b1b2b3" + bundle, true},
	} {
		got, err := over(t.Context(), tt.home, []cache.Holder{tt.holder})
		if err != nil || got[tt.holder] != tt.want {
			t.Errorf("%s in %s: %v, %v", tt.holder, tt.home, got, err)
		}
	}
	must(os.WriteFile(missing, nil, 0o600)) // a disk that does not answer as it should
	if got, err := over(t.Context(), missing, []cache.Holder{"row-b1b2b3" + bundle}); err != nil || got["row-b1b2b3"+bundle] {
		t.Errorf("of a worker whose directory cannot be read: %v, %v", got, err)
	}
}

// A worker that was stopped just after the end of a run has not dropped the run's holder.
func TestHoldersOfAnotherWorkersEndedRunsAreOver(t *testing.T) {
	t.Parallel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	home := filepath.Join(t.TempDir(), "other")
	must(os.Mkdir(home, 0o700))
	where := filepath.Join(home, "ledger.db")
	book, err := ledger.Open(t.Context(), where)
	must(err)
	must(book.Take(t.Context()))
	want := map[cache.Holder]bool{}
	for i, tt := range []struct {
		phase plan.Phase
		over  bool
	}{{plan.Staging, false}, {plan.Running, false}, {plan.Collecting, false}, {plan.Finalizing, true}, {plan.Done, true}} {
		row := plan.Row{Bundle: fmt.Sprintf("0x%032x", i), Phase: tt.phase}
		must(book.Save(t.Context(), []plan.Row{row}))
		want[pins.RowHolder(book.ID, row.Bundle)] = tt.over
	}
	never := pins.RowHolder(book.ID, fmt.Sprintf("0x%032x", 77))
	want[never] = false
	_, err = lease.Acquire(t.Context(), spool.Layout(home).BridgeDir(), lease.Holder{Bridge: book.ID, Ledger: where}, nil, nil)
	must(err)
	must(book.Close())
	over := pins.HomesOver(filepath.Join(t.TempDir(), "own"), nil)
	got, err := over(t.Context(), home, slices.Collect(maps.Keys(want)))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	must(os.Remove(where))
	got, err = over(t.Context(), home, []cache.Holder{never})
	if err != nil || got[never] {
		t.Errorf("without its ledger: %v, %v", got, err)
	}
}
