package nfstest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/spool"
)

// The bridge reads the doorbell repeatedly, so its client has an old listing in memory when a
// worker on another node rings.
func TestRingIsHeardThroughAStaleListing(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	must(t, os.MkdirAll(filepath.Join(s.disk, "spool", "bell"), 0o700))
	bridge, worker := spool.Disk{Layout: spool.Layout(s.a), Bridge: "b1"}, spool.Layout(s.b)
	for _, attempt := range []spool.AttemptName{"1-b1", "2-b1"} {
		if rang, err := bridge.TakeRings(); err != nil || len(rang) != 0 {
			t.Errorf("before: %v, %v", rang, err)
		}
		must(t, worker.Bell().Ring("0x1", attempt))
		if entries, err := os.ReadDir(filepath.Join(s.a, "spool", "bell")); err != nil || len(entries) != 0 {
			t.Errorf("this client's listing is fresh (%v, %v), and the test shows nothing", entries, err)
		}
		if rang, err := bridge.TakeRings(); err != nil || len(rang) != 1 || rang[0] != (spool.Ring{Bundle: "0x1", Attempt: attempt}) {
			t.Errorf("after a ring: %v, %v", rang, err)
		}
	}
	s.struck(StaleListing)
}

// The bridge reads an attempt's records while its worker sets the container up, so its client knows the old status
// record when the worker rings for the command.
func TestRingForTheCommandShowsItsBegin(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	layout := spool.Layout(s.disk)
	must(t, os.MkdirAll(filepath.Join(s.disk, "spool", "bell"), 0o700))
	must(t, os.MkdirAll(layout.Attempt("0x1", "1-b1").Dir, 0o700))
	bridge, worker := spool.Disk{Layout: spool.Layout(s.a), Bridge: "b1"}, spool.Layout(s.b)
	attempt := worker.Attempt("0x1", "1-b1")
	started, own, err := attempt.Begin(t.Context(), spool.Started{Token: spool.NewToken()})
	if err != nil || !own {
		t.Fatal(own, err)
	}
	for _, stage := range []spool.Stage{spool.StageStarting, spool.StageRunning} {
		must(t, attempt.WriteStatus(spool.Status{Token: started.Token, Stage: stage}))
		must(t, worker.Bell().Ring("0x1", "1-b1"))
		if rang, err := bridge.TakeRings(); err != nil || len(rang) != 1 {
			t.Errorf("%s: %v, %v", stage, rang, err)
		}
		if rec, err := bridge.ReadRecords("0x1", "1-b1"); err != nil || rec.Status == nil || rec.Status.Stage != stage {
			t.Errorf("%s: read %+v, %v", stage, rec.Status, err)
		}
	}
	s.struck(StaleHandle)
}
