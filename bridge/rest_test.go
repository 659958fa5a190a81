package bridge

import (
	"fmt"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// A day's bundles are kept for a day after their end: a hundred thousand rows of some kilobytes.
func TestRowsOfEndedBundlesRestInTheLedger(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0).UTC()
	done := func(i int) string { return fmt.Sprintf("0x%032d", i) }
	rows := []plan.Row{{Bundle: "0xlive", Phase: plan.Running, PhaseSince: now}}
	for i := range 100 {
		rows = append(rows, plan.Row{
			Bundle: done(i), Phase: plan.Done, PhaseSince: now,
			DueAt: now.Add(time.Duration(i+1) * time.Hour), KeepUntil: now.Add(1000 * time.Hour),
		})
	}
	b := opened(t, rows...)
	inMemory := func(what string, want int) {
		t.Helper()
		table := 0
		for _, e := range b.decider.rows.byBundle {
			if e.row != nil {
				table++
			}
		}
		if resting := b.Resting()["cpu"]; table != want || len(b.board.view.rows) != want || resting != 101-want {
			t.Errorf("%s: %d rows in memory, %d shown, %d resting; want %d", what, table, len(b.board.view.rows), resting, want)
		}
	}
	wanted(t, b, now)
	inMemory("before Slurm was seen", 1)
	b.inbox.putSnapshot(sbatch.Snapshot{Asked: now})
	wanted(t, b, now)
	if wait := b.decider.wait(now); wait > 0 {
		t.Errorf("after Slurm was seen all are decided in %s, want at once", wait)
	}
	wanted(t, b, now)
	inMemory("all were decided", 1)

	if effects := wanted(t, b, now.Add(time.Hour)); len(effects[done(0)]) != 1 || effects[done(0)][0] != plan.Confirm || len(effects[done(1)]) > 0 {
		t.Errorf("one is due: %v", effects)
	}
	inMemory("one was due", 1)
	if wait := b.decider.wait(now.Add(time.Hour + 59*time.Minute + 30*time.Second)); wait > 30*time.Second {
		t.Errorf("the next one is due in %s", wait)
	}

	b.inbox.putMessages("cpu", []codalab.Message{{Type: codalab.MessageRun, UUID: done(7), Bundle: &codalab.RunBundle{UUID: done(7)}}})
	wanted(t, b, now.Add(time.Hour))
	a := replier{ledger: b.Ledger, view: &b.board.view}
	if r, ok := a.knownRow(t.Context(), done(7)); !ok || r.Phase == plan.Claiming {
		t.Error("a bundle that is offered again is taken for a new one")
	}
	if r, ok := a.knownRow(t.Context(), done(9)); !ok || r.Phase != plan.Done {
		t.Errorf("a read of its files finds %+v, %v", r, ok)
	}
	if _, ok := a.knownRow(t.Context(), "0xnone"); ok {
		t.Error("a row of no bundle is found")
	}
}
