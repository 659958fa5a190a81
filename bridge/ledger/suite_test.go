package ledger_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

func save(t *testing.T, l *ledger.Ledger, rows ...plan.Row) []plan.Row {
	t.Helper()
	if err := l.Save(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// read returns all rows in the order of their bundles.
func read(t *testing.T, l *ledger.Ledger) []plan.Row {
	t.Helper()
	rows, err := l.Rows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(rows, func(a, b plan.Row) int { return cmp.Compare(a.Bundle, b.Bundle) })
	return rows
}

func entries(t *testing.T, l *ledger.Ledger, bundle string) []ledger.Entry {
	t.Helper()
	found, err := l.History(t.Context(), bundle)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// The suite of the ledger. Each of its tests has a ledger of its own at where, which is empty at
// first, on SQLite and on PostgreSQL.
func TestLedger(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, where string){
		"RowsComeBackAsTheyWereAfterARestart": rowsComeBack,
		"OutlineLeavesOutWhatIsDone":          outline,
		"StaleSaveWritesNothing":              staleSave,
		"StaleDeleteRemovesNothing":           staleDelete,
		"TextOfOtherProgramsIsTaken":          strangeText,
		"TakenLedgerIsWrittenByItsTakerAlone": taken,
		"GenerationNeverFalls":                generation,
		"GenerationIsRaisedByTheTaker":        raised,
		"HistoryTellsWhatChanged":             history,
		"HistoryOutlivesItsRow":               historyOutlives,
		"HistoryIsBounded":                    historyBounded,
		"EachAttemptIsChargedOnce":            chargedOnce,
		"ChargesStayAsLongAsHistories":        chargesStay,
		"EachRowIsWonByOneOfManyWriters":      concurrentWriters,
		"EachRowIsWonByOneOfManyProcesses":    concurrentProcesses,
		"KilledWriterLeavesWholeSaves":        killedWriter,
		"BrokenConnectionsLoseNothing":        brokenConnections,
		"ThousandsOfRowsComeAndGo":            cycle,
	} {
		for kind, place := range kinds {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t, place(t))
			})
		}
	}
}

func wantConflict(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("%s: %v, want ErrConflict", what, err)
	}
}

func rowsComeBack(t *testing.T, where string) {
	l := open(t, where)
	rows := save(t, l, fullRow("0x1"), fullRow("0x2"))
	changed := rows[0]
	changed.Phase = plan.Collecting
	rows[0] = save(t, l, changed)[0]
	if rows[0].Version != 2 || rows[1].Version != 1 {
		t.Errorf("versions %d and %d, want 2 and 1", rows[0].Version, rows[1].Version)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, where)
	same(t, "rows after a restart", rows, read(t, again))
	save(t, again, rows[1])
}

// outline: most rows are done, and no caller needs all fields of those.
func outline(t *testing.T, where string) {
	l := open(t, where)
	done := fullRow("0x2")
	done.Phase = plan.Done
	rows := save(t, l, fullRow("0x1"), done)
	found, err := l.Outline(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "outline", rows[:1], found.Rows)
	if want := map[string]string{"0x2": done.Queue}; !maps.Equal(found.Done, want) {
		t.Errorf("done are %v, want %v", found.Done, want)
	}
	var unfinished []plan.Row
	if err := l.EachUnfinished(t.Context(), func(r plan.Row) { unfinished = append(unfinished, r) }); err != nil {
		t.Fatal(err)
	}
	same(t, "unfinished rows", rows[:1], unfinished)
	phases, err := l.Phases(t.Context())
	if want := map[string]plan.Phase{"0x1": rows[0].Phase, "0x2": plan.Done}; err != nil || !maps.Equal(phases, want) {
		t.Errorf("phases are %v, %v; want %v", phases, err, want)
	}
}

func staleSave(t *testing.T, where string) {
	one, two := open(t, where), open(t, where)
	first := save(t, one, fullRow("0x1"))[0]
	second := save(t, one, first)[0]
	before := read(t, one)
	missing := fullRow("0x3")
	missing.Version = 1
	for what, stale := range map[string]plan.Row{"an old version": first, "new again": fullRow("0x1"), "never there": missing} {
		fresh := fullRow("0x9")
		both := []plan.Row{fresh, stale}
		wantConflict(t, what, two.Save(t.Context(), both))
		wantConflict(t, what+", as the first", two.Save(t.Context(), []plan.Row{stale, fresh}))
		if both[0].Version != 0 || both[1].Version != stale.Version {
			t.Errorf("%s: the refused save raised versions", what)
		}
	}
	same(t, "rows after refused saves", before, read(t, two))
	if got := entries(t, two, "0x9"); len(got) != 0 {
		t.Errorf("a refused save left a history: %v", got)
	}
	save(t, two, second)
}

func staleDelete(t *testing.T, where string) {
	one, two := open(t, where), open(t, where)
	first := save(t, one, fullRow("0x1"), fullRow("0x2"))[0]
	second := save(t, one, first)[0]
	wantConflict(t, "an old version", two.Delete(t.Context(), first))
	wantConflict(t, "never there", two.Delete(t.Context(), fullRow("0x3")))
	if n := len(read(t, two)); n != 2 {
		t.Errorf("%d rows, want both", n)
	}
	if err := two.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	wantConflict(t, "deleted twice", one.Delete(t.Context(), second))
	wantConflict(t, "saved after its deletion", one.Save(t.Context(), []plan.Row{second}))
	if rows := read(t, one); len(rows) != 1 || rows[0].Bundle != "0x2" {
		t.Errorf("rows %v, want 0x2 alone", rows)
	}
	save(t, one, fullRow("0x1"))
}

// taken: after a second bridge was started, only that one can write.
func taken(t *testing.T, where string) {
	one, two := open(t, where), open(t, where)
	take(t, one)
	mine := save(t, one, fullRow("0x1"), fullRow("0x2"))
	take(t, two)
	wantConflict(t, "saved by the writer before", one.Save(t.Context(), mine[:1]))
	wantConflict(t, "new, by the writer before", one.Save(t.Context(), []plan.Row{fullRow("0x3")}))
	wantConflict(t, "nothing at all, by the writer before", one.Save(t.Context(), nil))
	wantConflict(t, "deleted by the writer before", one.Delete(t.Context(), mine[0]))
	save(t, two, mine[0])
	save(t, two, fullRow("0x3"))
	if n := len(read(t, two)); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
}

func take(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	if err := l.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func wantGeneration(t *testing.T, what string, l *ledger.Ledger, n int64) {
	t.Helper()
	if got, err := l.Generation(t.Context()); err != nil || got != n {
		t.Errorf("%s: generation %d, %v; want %d", what, got, err, n)
	}
}

// raised: an old copy of a ledger learns of submissions for which it has no rows.
func raised(t *testing.T, where string) {
	l, other := open(t, where), open(t, where)
	raise := func(n int64) {
		t.Helper()
		if err := l.Raise(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	take(t, l)
	row := fullRow("0x1")
	row.Generation = 3
	rows := save(t, l, row)
	raise(9)
	wantGeneration(t, "raised", l, 9)
	raise(4)
	wantGeneration(t, "raised to less", other, 9)
	same(t, "rows", rows, read(t, l))
	take(t, other)
	wantConflict(t, "raised by the writer before", l.Raise(t.Context(), 12))
	wantGeneration(t, "a raise was refused", open(t, where), 9)
}

func generation(t *testing.T, where string) {
	l := open(t, where)
	want := func(what string, n int64) {
		t.Helper()
		wantGeneration(t, what, l, n)
	}
	want("at first", 0)
	low, high, none := fullRow("0x1"), fullRow("0x2"), fullRow("0x3")
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
	l = open(t, where)
	want("opened again", 5)
}

// strangeText: reasons quote the output of programs.
func strangeText(t *testing.T, where string) {
	l := open(t, where)
	r := fullRow("0x1")
	for _, text := range []string{"a\x00b", "\xff\xfe", "$1 ? :name 'quoted' \"too\" \\", "ä 世界 🙂", ""} {
		r.Reason, r.LastFailure = text, text
		r = save(t, l, r)[0]
		if got := read(t, l); len(got) != 1 || got[0].Version != r.Version {
			t.Errorf("%q: rows %v", text, got)
		}
		r = save(t, l, r)[0] // saving the same again is no change
	}
	if got := entries(t, l, "0x1"); len(got) != 5 {
		t.Errorf("%d entries, want 5", len(got))
	}
}

func history(t *testing.T, where string) {
	l := open(t, where)
	r := fullRow("0x1")
	r.Job.ID = 0
	var want []ledger.Entry
	decide := func(adds bool, change func()) {
		t.Helper()
		change()
		r.DecidedAt = r.DecidedAt.Add(time.Second)
		r = save(t, l, r, fullRow(fmt.Sprintf("0xa%d", r.Version)))[0]
		if adds {
			want = append(want, ledger.Entry{
				Bundle: r.Bundle, N: int64(len(want) + 1), Version: r.Version, At: r.DecidedAt,
				Phase: r.Phase, Attempt: r.Attempt.Number, Job: r.Job.ID, Reason: r.Reason,
			})
		}
	}
	decide(true, func() {})
	decide(false, func() { r.FailedTries++ })
	decide(true, func() { r.Phase = plan.Staging })
	decide(true, func() { r.Reason = "try 1 failed: no route to host" })
	decide(false, func() { r.Job.ID = 4711 })
	decide(true, func() { r.Attempt.Number++ })
	decide(true, func() { r.Phase, r.Reason = plan.Submitting, "there is room" })
	same(t, "history", want, entries(t, l, "0x1"))
	same(t, "history, read by another", want, entries(t, open(t, where), "0x1"))
	if got := entries(t, l, "0x2"); len(got) != 0 {
		t.Errorf("an unknown bundle has the history %v", got)
	}
}

func historyOutlives(t *testing.T, where string) {
	l := open(t, where)
	r := save(t, l, fullRow("0x1"))[0]
	if err := l.Delete(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	before := entries(t, l, "0x1")
	if len(before) != 1 {
		t.Fatalf("%d entries of a deleted row, want 1", len(before))
	}
	again := fullRow("0x1")
	again.Reason = "the server offered it again"
	save(t, l, again)
	after := entries(t, l, "0x1")
	if len(after) != 2 || after[0] != before[0] || after[1].N != 2 || after[1].Version != 1 || after[1].Reason != again.Reason {
		t.Errorf("history of a bundle that came again: %+v", after)
	}
}

func historyBounded(t *testing.T, where string) {
	l := open(t, where)
	r := fullRow("0x1")
	const changes, bound = 500, 100
	for i := range changes {
		r.Reason = fmt.Sprintf("try %d failed", i+1)
		r = save(t, l, r)[0]
	}
	got := entries(t, l, "0x1")
	if len(got) > bound || len(got) < 20 {
		t.Fatalf("%d entries are kept of %d, want 20 to %d", len(got), changes, bound)
	}
	if got[0].N != 1 || got[9].N != 10 || got[len(got)-1].N != changes || got[len(got)-10].N != changes-9 {
		t.Errorf("the first ten and the last ten are not there: %v", got)
	}
	for i, e := range got {
		if e.Reason != fmt.Sprintf("try %d failed", e.N) || e.Version != e.N || i > 0 && got[i-1].N >= e.N {
			t.Errorf("entry %d is %+v", i, e)
		}
	}
}

// cycle: thousands of bundles, a hundred at a time, from their offer to their
// end.
func cycle(t *testing.T, where string) {
	l := open(t, where)
	const bundles, step = 2000, 100
	rows := make([]plan.Row, bundles)
	for i := range rows {
		rows[i] = fullRow(fmt.Sprintf("0x%04x", i))
		rows[i].Generation = 0
	}
	last := int64(0)
	for _, phase := range plan.Phases() {
		for part := range slices.Chunk(rows, step) {
			for i := range part {
				part[i].Phase, part[i].Reason = phase, "it is "+string(phase)
				if phase == plan.Submitting {
					last++
					part[i].Generation = last
				}
			}
			save(t, l, part...)
		}
	}
	same(t, "rows", rows, read(t, l))
	for _, r := range rows {
		if err := l.Delete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if left := read(t, l); len(left) > 0 {
		t.Errorf("%d rows are left", len(left))
	}
	if got, err := l.Generation(t.Context()); err != nil || got != bundles {
		t.Errorf("generation %d, %v", got, err)
	}
	for _, bundle := range []string{rows[0].Bundle, rows[bundles-1].Bundle} {
		if n := len(entries(t, l, bundle)); n != len(plan.Phases()) {
			t.Errorf("%s has %d entries", bundle, n)
		}
	}
}
