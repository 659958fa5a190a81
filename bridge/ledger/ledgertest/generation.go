package ledgertest

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

func wantGeneration(t *testing.T, what string, l Ledger, n int64) {
	t.Helper()
	if got, err := l.Generation(t.Context()); err != nil || got != n {
		t.Errorf("%s: generation %d, %v; want %d", what, got, err, n)
	}
}

// raised: an old copy of a ledger learns of submissions that it has no rows of.
func (on trial) raised() {
	t, s := on.T, on.Site
	l, other := open(t, s), open(t, s)
	r, ok := l.(Raiser)
	if !ok {
		t.Skip("this ledger's generation is not raised")
	}
	raise := func(n int64) {
		t.Helper()
		if err := r.Raise(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	take(t, l)
	row := Row("0x1")
	row.Generation = 3
	rows := save(t, l, row)
	raise(9)
	wantGeneration(t, "raised", l, 9)
	raise(4)
	wantGeneration(t, "raised to less", other, 9)
	same(t, "rows", rows, read(t, l))
	take(t, other)
	wantConflict(t, "raised by who had it", r.Raise(t.Context(), 12))
	wantGeneration(t, "a raise was refused", open(t, s), 9)
}

func (on trial) generation() {
	t, s := on.T, on.Site
	l := open(t, s)
	want := func(what string, n int64) {
		t.Helper()
		wantGeneration(t, what, l, n)
	}
	want("at first", 0)
	low, high, none := Row("0x1"), Row("0x2"), Row("0x3")
	low.Generation, high.Generation, none.Generation = 3, 5, 0
	rows := save(t, l, high, low, none)
	want("saved together", 5)
	if err := l.Delete(t.Context(), rows[0]); err != nil {
		t.Fatal(err)
	}
	rows[1].Generation = 4
	save(t, l, rows[1])
	want("its row is gone, and lower ones are saved", 5)
	stale := rows[1]
	stale.Generation, stale.Version = 9, 1
	wantConflict(t, "stale", l.Save(t.Context(), []plan.Row{stale}))
	want("a save was refused", 5)
	l = open(t, s)
	want("opened again", 5)
}
