package ledger_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// kinds has a function for each kind of ledger, which makes an empty place for it.
var kinds = map[string]func(testing.TB) string{"SQLite": file, "PostgreSQL": testenv.Postgres}

func file(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "ledger.db")
}

func open(tb testing.TB, where string) *ledger.Ledger {
	tb.Helper()
	l, err := ledger.Open(tb.Context(), where)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// onEach runs a test on an empty place for a ledger of each kind.
func onEach(t *testing.T, test func(t *testing.T, place func(testing.TB) string)) {
	t.Helper()
	for kind, place := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, place)
		})
	}
}

func TestLedgerIsKnownByOneID(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, place func(testing.TB) string) {
		where := place(t)
		var wg sync.WaitGroup
		ids := make([]string, 4)
		for i := range ids {
			wg.Go(func() {
				l, err := ledger.Open(t.Context(), where)
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = l.ID
				_ = l.Close()
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] || len(id) != 6 {
				t.Errorf("ids %q, want one of six digits", ids)
			}
		}
	})
}

func TestHistoryGoesSomeTimeAfterItsRow(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, place func(testing.TB) string) {
		l := open(t, place(t))
		const day = 24 * time.Hour
		l.KeepHistory = 30 * day
		begin := time.Unix(1_800_000_000, 0).UTC()
		rows := map[string]plan.Row{}
		decide := func(bundle string, at time.Duration) {
			r, ok := rows[bundle]
			if !ok {
				r = fullRow(bundle)
			}
			r.DecidedAt, r.Reason = begin.Add(at), at.String()
			save := []plan.Row{r}
			if err := l.Save(t.Context(), save); err != nil {
				t.Fatal(err)
			}
			rows[bundle] = save[0]
		}
		forget := func(bundle string) {
			if err := l.Delete(t.Context(), rows[bundle]); err != nil {
				t.Fatal(err)
			}
			delete(rows, bundle)
		}
		entries := func(bundle string) int {
			found, err := l.History(t.Context(), bundle)
			if err != nil {
				t.Fatal(err)
			}
			return len(found)
		}
		decide("0xwaits", 0)
		decide("0xold", 0)
		decide("0xagain", 0)
		forget("0xold")
		forget("0xagain")
		decide("0xnew", 29*day)
		decide("0xagain", 29*day)
		forget("0xnew")
		if n := entries("0xold"); n != 1 {
			t.Errorf("%d entries after 29 days, want 1", n)
		}
		decide("0xnow", 31*day)
		forget("0xnow")
		for bundle, want := range map[string]int{"0xold": 0, "0xwaits": 1, "0xnew": 1, "0xagain": 2, "0xnow": 1} {
			if n := entries(bundle); n != want {
				t.Errorf("%s has %d entries after 31 days, want %d", bundle, n, want)
			}
		}
	})
}

func TestReaderFindsBundlesWithAndWithoutARow(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, place func(testing.TB) string) {
		where := place(t)
		if _, err := ledger.OpenToRead(t.Context(), where); !errors.Is(err, ledger.ErrAbsent) {
			t.Fatalf("no ledger yet: %v", err)
		}
		l := open(t, where)
		rows := []plan.Row{fullRow("0x1a2"), fullRow("0x1af"), fullRow("0x1b0")}
		if err := l.Save(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
		if err := l.Delete(t.Context(), rows[1]); err != nil {
			t.Fatal(err)
		}
		r, err := ledger.OpenToRead(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		for prefix, want := range map[string][]string{
			"0x": {"0x1a2", "0x1af"}, "0x1a": {"0x1a2", "0x1af"}, "0x1af": {"0x1af"}, "0x1b": {"0x1b0"}, "0x2": nil,
		} {
			if got, err := r.Bundles(t.Context(), prefix, 2); err != nil || !slices.Equal(got, want) {
				t.Errorf("bundles of %s are %q, %v; want %q", prefix, got, err, want)
			}
		}
		if got, err := r.Row(t.Context(), "0x1a2"); err != nil || cmp.Diff(rows[0], got) != "" {
			t.Errorf("row %+v, %v", got, err)
		}
		if _, err := r.Row(t.Context(), "0x1af"); !errors.Is(err, ledger.ErrAbsent) {
			t.Errorf("row of a forgotten bundle: %v", err)
		}
	})
}

func TestSecondBridgeOnALedgerIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, place func(testing.TB) string) {
		where := place(t)
		release, err := ledger.Lock(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ledger.Lock(t.Context(), where); err == nil || !strings.Contains(err.Error(), "another cl-bridge") {
			t.Errorf("second lock: %v", err)
		}
		other, err := ledger.Lock(t.Context(), place(t))
		if err != nil {
			t.Fatalf("a second ledger: %v", err)
		}
		other()
		release()
		if release, err = ledger.Lock(t.Context(), where); err != nil {
			t.Fatal(err)
		}
		release()
	})
}
