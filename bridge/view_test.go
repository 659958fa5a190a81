package bridge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// flying publishes rows in flight.
func flying(b *Bridge, bundles ...string) {
	for _, bundle := range bundles {
		show(b, plan.Row{Bundle: bundle, Queue: "cpu", Phase: plan.Running})
	}
}

func turnOf(b *Bridge, now time.Time) []string {
	var bundles []string
	for _, r := range b.board.view.nextToRead(now, 5*time.Second) {
		bundles = append(bundles, r.Bundle)
	}
	return bundles
}

func TestRecordsAreReadInTurnAndFewAtOnce(t *testing.T) {
	t.Parallel()
	b := &Bridge{}
	b.assemble()
	b.board.init()
	var all []string
	for i := range 2*readAtOnce + 1 {
		all = append(all, fmt.Sprintf("0x%02d", i))
	}
	flying(b, all...)
	now := time.Unix(1_800_000_000, 0)
	for range 3 {
		var read []string
		for _, want := range []int{readAtOnce, readAtOnce, 1, 0} {
			got := turnOf(b, now)
			if len(got) != want {
				t.Fatalf("%d are read, want %d", len(got), want)
			}
			read = append(read, got...)
			now = now.Add(time.Second)
		}
		if !slices.Equal(read, all) {
			t.Errorf("read %v, want each once and in the same order", read)
		}
		now = now.Add(5 * time.Second)
	}
	if now = now.Add(-time.Hour); len(turnOf(b, now)) == 0 {
		t.Error("nothing is read for an hour after the clock was set back by one")
	}
}

func TestRecordsOfAnEarlierLifeAreReadOnceSoon(t *testing.T) {
	t.Parallel()
	b := &Bridge{}
	b.assemble()
	b.board.init()
	for i := range 2*resumedAtOnce + 5 {
		b.board.resume(&plan.Row{Bundle: fmt.Sprintf("0x%02d", i), Queue: "cpu", Phase: plan.Running})
	}
	now := time.Unix(1_800_000_000, 0)
	for i, want := range []int{resumedAtOnce, resumedAtOnce, 5, 0, 0, readAtOnce} {
		if got := turnOf(b, now.Add(time.Duration(i)*time.Second)); len(got) != want {
			t.Errorf("after %d s %d are read, want %d", i, len(got), want)
		}
	}
}

// A thousand members wait in their pack, and ten run.
func TestRecordsOfRunsAreReadBeforeThoseOfMembersThatWait(t *testing.T) {
	t.Parallel()
	b := &Bridge{}
	b.assemble()
	b.board.init()
	begun := plan.Attempt{Begun: &spool.Started{Token: "worker"}}
	for i := range 1000 {
		waits := plan.Row{Bundle: fmt.Sprintf("waits %d", i), Queue: "cpu", Phase: plan.Queued, Attempt: plan.Attempt{Pack: true}}
		waits.Job.State = sbatch.StateRunning
		show(b, waits)
	}
	for i := range 10 { // they waited, too
		show(b, plan.Row{Bundle: fmt.Sprintf("waits %d", i), Queue: "cpu", Phase: plan.Running, Attempt: begun})
	}
	now := time.Unix(1_800_000_000, 0)
	read := map[string]int{}
	for i := range 60 {
		for _, bundle := range turnOf(b, now.Add(time.Duration(i)*time.Second)) {
			read[bundle]++
		}
	}
	for i := range 10 {
		if n := read[fmt.Sprintf("waits %d", i)]; n != 12 {
			t.Errorf("the records of run %d were read %d times in a minute, want 12", i, n)
		}
	}
	if n := len(read) - 10; n != 60 {
		t.Errorf("the records of %d members that wait were read in a minute, want 60", n)
	}
}

// A server takes the worker of a run for lost that it has not heard of for a minute, and others may have their turns before.
func TestRunWhoseReportsWaitForAFailedReadingIsReadAgainSoon(t *testing.T) {
	t.Parallel()
	b := onDisk(t, false)
	b.records.every = time.Minute
	for i := range resumedAtOnce {
		b.board.resume(&plan.Row{Bundle: fmt.Sprintf("0x%02d", i), Queue: "cpu", Phase: plan.Running, Attempt: plan.Attempt{UsageUnread: i == 7}})
	}
	now := time.Unix(1_800_000_000, 0)
	b.records.readTurn(now)
	for range 3 {
		if rows := b.board.view.nextToRead(now.Add(againPause-time.Second), b.records.every); len(rows) > 0 {
			t.Errorf("%d rows are read at once again", len(rows))
		}
		now = now.Add(againPause)
		b.records.readTurn(now) // it fails again
		if n := len(b.board.view.reading.again); n != 1 {
			t.Errorf("%d rows are to be read again soon, want the one whose reports wait", n)
		}
	}
	if rows := b.board.view.nextToRead(now.Add(againPause), b.records.every); len(rows) != 1 || rows[0].Bundle != "0x07" {
		t.Errorf("%d rows are read again, want 0x07", len(rows))
	}
}

func TestBundleThatLandsAndTakesOffAgainHasOneTurn(t *testing.T) {
	t.Parallel()
	b := &Bridge{}
	b.assemble()
	b.board.init()
	flying(b, "0x1", "0x2")
	now := time.Unix(1_800_000_000, 0)
	for range 3 {
		show(b, plan.Row{Bundle: "0x1", Queue: "cpu", Phase: plan.Staging})
		flying(b, "0x1")
	}
	if got := turnOf(b, now); !slices.Equal(got, []string{"0x2", "0x1"}) {
		t.Errorf("read %v, want each once", got)
	}
	show(b, plan.Row{Bundle: "0x2", Queue: "cpu", Phase: plan.Collecting})
	b.board.view.remove(&plan.Row{Bundle: "0x1"})
	if got := turnOf(b, now.Add(time.Minute)); got != nil || len(b.board.view.reading.turns) != 0 {
		t.Errorf("read %v of none in flight, %d wait", got, len(b.board.view.reading.turns))
	}
}

// Two a second take off for an hour beside a hundred that stay, and each lands
// soon.
func TestTurnsDoNotPileUp(t *testing.T) {
	t.Parallel()
	b := &Bridge{}
	b.assemble()
	b.board.init()
	for i := range 100 {
		flying(b, fmt.Sprintf("0x%d", i))
	}
	now := time.Unix(1_800_000_000, 0)
	for range 3600 {
		for _, bundle := range []string{"a", "b"} {
			flying(b, bundle)
			show(b, plan.Row{Bundle: bundle, Queue: "cpu", Phase: plan.Collecting})
		}
		b.board.view.nextToRead(now, 5*time.Second)
		now = now.Add(time.Second)
		if len(b.board.view.reading.turns) > 220 {
			t.Fatalf("%d turns of 100 rows in flight", len(b.board.view.reading.turns))
		}
	}
}
