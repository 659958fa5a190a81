package sharedfiles_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// bundle is the UUID of a bundle of the tests; it differs from others in the part that a
// submission name has.
func bundle(n int) string { return fmt.Sprintf("0x%012x%020x", n, n) }

// later is a disk some time later: no test can set back when a file was
// changed.
type later struct {
	spool.Disk
	by time.Duration
}

func (l later) Now() (time.Time, error) {
	now, err := l.Disk.Now()
	return now.Add(l.by), err
}

// queue is a Slurm that shows jobs, or does not answer.
type queue struct {
	jobs []sbatch.Job
	err  error
}

func (q *queue) Observe(_ context.Context, now time.Time) (sbatch.Snapshot, error) {
	return sbatch.Snapshot{Asked: now, Jobs: q.jobs}, q.err
}

// site is a shared directory with what bridges have left on it, and the ledger
// of one of them.
type site struct {
	*testing.T
	layout spool.Layout
	book   *ledger.Ledger
	slurm  *queue
	*sharedfiles.Sweeper
}

const grace = 7 * 24 * time.Hour

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, layout: spool.Layout(filepath.Join(t.TempDir(), "shared")), slurm: &queue{}}
	for _, d := range s.layout.Directories() {
		s.must(os.MkdirAll(d, 0o700))
	}
	var err error
	s.book, err = ledger.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"))
	s.must(err)
	t.Cleanup(func() { s.must(s.book.Close()) })
	s.Sweeper = s.sweeper()
	return s
}

func (s *site) sweeper() *sharedfiles.Sweeper {
	return &sharedfiles.Sweeper{
		Ledger: s.book, Scheduler: s.slurm, Disk: later{spool.Disk{Layout: s.layout}, 2 * grace}, Grace: grace, Now: time.Now,
	}
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// submission names a bundle's attempt in Slurm; bridge is "" for the site's own.
func (s *site) submission(n, attempt int, bridge string) string {
	if bridge == "" {
		bridge = s.book.ID
	}
	return fmt.Sprintf("cl-ann-b_c-%012x.%d-%s", n, attempt, bridge)
}

// attempt leaves what a bridge and a worker leave of an attempt.
func (s *site) attempt(n int, bridge string) {
	s.Helper()
	disk := spool.Disk{Layout: s.layout}
	s.must(disk.Prepare("1-b1", spool.Spec{Bundle: bundle(n), Attempt: 1, SubmissionName: s.submission(n, 1, bridge), RunDir: s.layout.RunDir(bundle(n), "1-b1")}))
	s.write(filepath.Join(s.layout.RunDir(bundle(n), "1-b1"), "result"))
}

func (s *site) write(path string) {
	s.Helper()
	s.must(os.MkdirAll(filepath.Dir(path), 0o700))
	s.must(os.WriteFile(path, make([]byte, 5000), 0o600))
}

// row gives a bundle a row.
func (s *site) row(n int, phase plan.Phase, submitted time.Time) {
	s.Helper()
	r := plan.Row{
		Bundle: bundle(n), Phase: phase, Attempt: plan.Attempt{Number: 1, Generation: int64(n), SubmissionName: plan.SubmissionName(s.submission(n, 1, "")), SubmittedAt: submitted},
	}
	if phase == plan.Done {
		r.NoJobSince = submitted
	}
	s.must(s.book.Save(s.Context(), []plan.Row{r}))
}

// job has Slurm show a job.
func (s *site) job(name, comment string) {
	s.slurm.jobs = append(s.slurm.jobs, sbatch.Job{ID: sbatch.JobID(len(s.slurm.jobs) + 1), Name: name, Comment: comment, State: sbatch.StateRunning, Nodes: "n1"})
}

// tree lists all that is on the shared disk, but the empty directories.
func (s *site) tree() []string {
	s.Helper()
	var found []string
	s.must(filepath.WalkDir(string(s.layout), func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			found = append(found, strings.TrimPrefix(path, string(s.layout)+"/"))
		}
		return err
	}))
	return found
}

// files are those of an attempt.
func (s *site) files(n int, bridge string) []string {
	return []string{
		"runs/" + bundle(n) + "/1-b1/result", "spool/" + bundle(n) + "/1-b1/spec.json", "spool/marks/" + s.submission(n, 1, bridge) + ".json",
	}
}

func (s *site) want(files ...string) {
	s.Helper()
	slices.Sort(files)
	if diff := cmp.Diff(files, s.tree()); diff != "" {
		s.Errorf("on the disk (-want +got):\n%s", diff)
	}
}

func (s *site) sweep() []sharedfiles.Finding {
	s.Helper()
	found, err := s.Sweep(s.Context())
	s.must(err)
	for _, f := range found {
		if f.Trouble != "" {
			s.Errorf("%s: %s", f.Path, f.Trouble)
		}
	}
	return found
}

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
	s.write(filepath.Join(s.layout.RunDir(bundle(8), "1-b1"), "unmarked"))
	ring := s.layout.Bell()
	s.must(errors.Join(ring.Ring(bundle(1), "1-b1"), ring.Ring(bundle(9), "1-b1")))
	s.write(filepath.Join(s.layout.BundleDir(bundle(5)), "1-b1", ".started.tmp-12"))
	s.write(filepath.Join(string(s.layout), "spool", "marks", ".x.json.tmp-12"))
	s.write(filepath.Join(s.layout.RunDir(bundle(1), "1-b1"), ".mine.tmp-12"))
	s.must(os.Chmod(s.layout.RunDir(bundle(5), "1-b1"), 0o500)) // closed by its command

	before := s.tree()
	dry, err := s.Find(t.Context())
	s.must(err)
	if diff := cmp.Diff(before, s.tree()); diff != "" {
		t.Errorf("looking changed (-before +after):\n%s", diff)
	}
	found := s.sweep()
	kept := append(s.files(7, "ffffff"), "runs/"+bundle(8)+"/1-b1/unmarked", "runs/"+bundle(1)+"/1-b1/.mine.tmp-12", "spool/bell/"+bundle(1)+".1-b1")
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
	if again := s.sweep(); len(again) != 4 { // of another bridge, and unmarked
		t.Errorf("a second sweep finds %+v", again)
	}
}

func TestSweepKeepsWhatWasChangedWithinTheGrace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.attempt(1, "")
	s.write(filepath.Join(filepath.Dir(s.layout.Members("x")), ".x.json.tmp-12"))
	s.Disk = later{spool.Disk{Layout: s.layout}, grace - time.Hour}
	// No file can be made to look older than it is.
	old := time.Now().Add(-100 * grace)
	s.must(os.Chtimes(filepath.Join(s.layout.RunDir(bundle(1), "1-b1"), "result"), old, old))
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

func (f *failing) Outline(ctx context.Context) ([]plan.Row, error) {
	if f.reads++; f.reads == f.at {
		return nil, errors.New("no answer")
	}
	return f.Ledger.Outline(ctx)
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
		"the members are not there": func(s *site) { s.must(os.Rename(filepath.Dir(s.layout.Members("x")), string(s.layout)+"/x")) },
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

func (r *returning) Outline(ctx context.Context) ([]plan.Row, error) {
	rows, err := r.Ledger.Outline(ctx)
	if r.come != nil {
		r.come()
		r.come = nil
	}
	return rows, err
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
	if len(left) != 6 {
		t.Fatalf("put %d aside, want 6", len(left))
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
