package sharedfiles_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestSweepRemovesWhatNoRowAndNoJobNeeds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for n := 1; n <= 6; n++ {
		s.attempt(n, "")
	}
	s.row(1, plan.Done, time.Time{})
	s.job(s.submission(2, 1, ""), "rewritten by the site")
	s.job("renamed", fmt.Sprintf("codalab bundle=%s attempt=1 owner=1 bridge=%s generation=0", bundle(3), s.book.ID))
	s.job(s.submission(4, 2, ""), "another attempt of the bundle's")
	s.attempt(7, "ffffff")
	s.write(filepath.Join(s.layout.RunDir(bundle(8), "one"), "nameless"))
	ring := s.layout.Bell()
	s.must(errors.Join(ring.Ring(bundle(1), "1-b1"), ring.Ring(bundle(9), "1-b1")))
	name := spool.NameAttempt(1, s.book.ID)
	s.write(filepath.Join(s.layout.BundleDir(bundle(5)), string(name), ".started.tmp-12"))
	s.write(filepath.Join(s.layout.RunDir(bundle(1), name), ".mine.tmp-12"))
	s.must(os.Chmod(s.layout.RunDir(bundle(5), name), 0o500)) // closed by its command

	before := s.tree()
	dry, err := s.Find(t.Context())
	s.must(err)
	if diff := gocmp.Diff(before, s.tree()); diff != "" {
		t.Errorf("looking changed (-before +after):\n%s", diff)
	}
	found := s.sweep()
	kept := append(s.files(7, "ffffff"), "runs/"+bundle(8)+"/one/nameless", "runs/"+bundle(1)+"/"+string(name)+"/.mine.tmp-12", "spool/bell/"+bundle(1)+".1-b1")
	for n := 1; n <= 4; n++ {
		kept = append(kept, s.files(n, "")...)
	}
	s.want(kept...)
	if len(dry) != len(found) {
		t.Errorf("the dry run found %d, the sweep %d", len(dry), len(found))
	}
	for i, f := range found {
		if f.Removed == f.Kept || dry[i].Removed || dry[i].Path != f.Path || f.Reason == "" || f.Kind != spool.LeftRing && !f.Kept && f.Bytes == 0 {
			t.Errorf("finding %+v, in the dry run %+v", f, dry[i])
		}
	}
	if again := s.sweep(); len(again) != 3 { // of another bridge, and nameless
		t.Errorf("a second sweep finds %+v", again)
	}
}

func TestSweepKeepsWhatWasChangedWithinTheGrace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.attempt(1, "")
	s.write(filepath.Join(s.layout.BundleDir(bundle(1)), ".x.json.tmp-12"))
	s.Disk = later{spool.Disk{Layout: s.layout}, grace - time.Hour}
	// No file can be made to look older than it is.
	old := time.Now().Add(-100 * grace)
	s.must(os.Chtimes(filepath.Join(s.layout.RunDir(bundle(1), spool.NameAttempt(1, s.book.ID)), "result"), old, old))
	before := s.tree()
	if found := s.sweep(); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
	s.want(before...)
}

// deep is a disk on which a file below a run directory was changed just now.
type deep struct{ later }

func (d deep) Weigh(ctx context.Context, l spool.Leftover) (int64, time.Time, error) {
	n, _, err := d.later.Weigh(ctx, l)
	now, _ := d.Now()
	return n, now, err
}

func TestSweepLooksThroughAllOfWhatItRemoves(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.attempt(1, "")
	s.Disk = deep{later{spool.Disk{Layout: s.layout}, 2 * grace}}
	s.sweep()
	s.want(s.files(1, "")...)
}

// failing is a ledger that cannot be read the n-th time.
type failing struct {
	*ledger.Ledger
	at, reads int
}

func (f *failing) Phases(ctx context.Context) (map[string]plan.Phase, error) {
	if f.reads++; f.reads == f.at {
		return nil, errors.New("no answer")
	}
	return f.Ledger.Phases(ctx)
}

func TestSweepRemovesNothingWhereItCannotKnow(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*site){
		"Slurm does not answer":      func(s *site) { s.slurm.err = errors.New("no answer") },
		"the ledger does not answer": func(s *site) { s.Ledger = &failing{s.book, 1, 0} },
		"the ledger goes":            func(s *site) { s.Ledger = &failing{s.book, 2, 0} },
		"the ledger is old": func(s *site) {
			s.job(s.submission(9, 1, ""), "codalab bundle="+bundle(9)+" attempt=1 owner=1 bridge="+s.book.ID+" generation=99")
		},
		"the doorbell is not there": func(s *site) { s.must(os.Rename(string(s.layout)+"/spool/bell", string(s.layout)+"/x")) },
		"the disk is not there":     func(s *site) { s.must(os.Rename(string(s.layout)+"/spool", string(s.layout)+"/x")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.attempt(1, "")
			s.write(s.layout.Bin("0123456789ab") + "/cl-worker")
			spoil(s)
			before := s.tree()
			if _, err := s.Sweep(t.Context()); err == nil {
				t.Error("the sweep knew all")
			}
			s.want(before...)
		})
	}
}

// returning is a ledger to which a bundle comes back between two readings.
type returning struct {
	*ledger.Ledger
	come func()
}

func (r *returning) Phases(ctx context.Context) (map[string]plan.Phase, error) {
	phases, err := r.Ledger.Phases(ctx)
	if r.come != nil {
		r.come()
		r.come = nil
	}
	return phases, err
}

func TestBundleThatComesBackDuringASweepKeepsItsFiles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.attempt(1, "")
	s.attempt(2, "")
	s.Ledger = &returning{s.book, func() { s.row(1, plan.Claiming, time.Time{}) }}
	s.sweep()
	s.want(s.files(1, "")...)
}

func TestNextSweepEndsOneThatDied(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.attempt(1, "")
	s.attempt(2, "")
	disk := spool.Disk{Layout: s.layout}
	left, err := disk.Leftovers(func(string) bool { return false })
	s.must(err)
	now, err := disk.Now()
	s.must(err)
	for _, l := range left {
		_, err := disk.PutAside(l, now)
		s.must(err)
	}
	if len(left) != 4 {
		t.Fatalf("put %d aside, want 4", len(left))
	}
	s.row(1, plan.Running, time.Now())
	s.sweep()
	s.want(s.files(1, "")...)
	s.sweep()
	s.want(s.files(1, "")...)
}

func TestWorkerStaysAsLongAsAJobMayRunIt(t *testing.T) {
	t.Parallel()
	old := func(s *site) string { return s.layout.Bin("0123456789ab") + "/cl-worker" }
	for name, test := range map[string]struct {
		make func(s *site)
		goes bool
	}{
		"no job":             {func(*site) {}, true},
		"a job of its time":  {func(s *site) { s.row(1, plan.Queued, time.Now()) }, false},
		"a later job":        {func(s *site) { s.row(1, plan.Queued, time.Now().Add(grace)) }, true},
		"an unknown job":     {func(s *site) { s.job(s.submission(1, 1, ""), "") }, false},
		"one that has ended": {func(s *site) { s.row(1, plan.Done, time.Now()) }, true},
		"another bridge":     {func(s *site) { s.attempt(1, "ffffff") }, false},
		"it is in use": {func(s *site) {
			s.Workers, s.Disk = []string{old(s)}, later{spool.Disk{Layout: s.layout}, grace - time.Hour}
		}, false},
		"it is being used": {func(s *site) {
			before := time.Now().Add(-time.Minute) // the clock of files has ticks
			for _, path := range []string{old(s), filepath.Dir(old(s))} {
				s.must(os.Chtimes(path, before, before))
			}
			s.Disk = used{later{spool.Disk{Layout: s.layout}, 2 * grace}, old(s)}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.write(old(s))
			test.make(s)
			_, err := s.Sweep(t.Context())
			s.must(err)
			if _, err := os.Stat(old(s)); (err != nil) != test.goes {
				t.Errorf("the old worker: %v; want it gone: %v", err, test.goes)
			}
		})
	}
}

func TestSweepTakesNothingInBinButVersionsOfTheWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	bin := filepath.Dir(s.layout.Bin("x"))
	ours, foreign := []string{
		"0123456789ab/cl-worker",
		"0123456789ac/.cl-worker.tmp-12",   // its bridge died before it was whole
		".trash-12-0123456789ad/cl-worker", // a sweep died before it was removed
	}, []string{
		"mytool",
		"cl-worker",
		".mytool.tmp-12",
		"conda/python",
		"conda/.python.tmp-12",
		".trash-12-conda/python",
		"0123456789AB/cl-worker",  // no bridge writes capitals
		"0123456789abc/cl-worker", // nor so many digits
		"0123456789ae/cl-worker",  // with a foreign file beside it
		"0123456789ae/notes",
		"0123456789af/lib/cl-worker",
		"0123456789b0/cl-worker/main", // a directory
		".trash-12-0123456789b1/notes",
	}
	for _, name := range append(ours, foreign...) {
		s.write(filepath.Join(bin, name))
	}
	s.must(errors.Join(
		os.WriteFile(filepath.Join(bin, "0123456789b2"), nil, 0o600),
		os.Symlink("conda", filepath.Join(bin, "0123456789b3")),
	))
	s.sweep()
	want := []string{"bin/0123456789b2", "bin/0123456789b3"}
	for _, name := range foreign {
		want = append(want, "bin/"+name)
	}
	s.want(want...)
}

// used is a disk on which a bridge begins to use a worker right before it is
// put aside.
type used struct {
	later
	worker string
}

func (u used) PutAside(l spool.Leftover, now time.Time) (spool.Leftover, error) {
	if l.Kind == spool.LeftWorker {
		if err := u.Touch(u.worker); err != nil {
			return l, err
		}
	}
	return u.later.PutAside(l, now)
}

func TestSweepersSideBySideAgree(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var want []string
	for n := 1; n <= 40; n++ {
		s.attempt(n, "")
		if n%4 == 0 {
			s.row(n, plan.Finalizing, time.Time{})
			want = append(want, s.files(n, "")...)
		}
	}
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			if _, err := s.sweeper().Sweep(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	s.want(want...)
}

func TestSharedDirectoryThatIsNotThereIsSaid(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must(os.RemoveAll(string(s.layout)))
	if _, err := s.Find(t.Context()); err == nil || !strings.Contains(err.Error(), "shared disk's clock") {
		t.Errorf("error %v", err)
	}
}
