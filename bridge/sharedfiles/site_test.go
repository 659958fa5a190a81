package sharedfiles_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

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

// attempt leaves what a bridge and a worker leave of an attempt; bridge is "" for the site's own.
func (s *site) attempt(n int, bridge string) {
	s.Helper()
	s.leave(n, spool.NameAttempt(1, cmp.Or(bridge, s.book.ID)), bridge)
}

func (s *site) leave(n int, name spool.AttemptName, bridge string) {
	s.Helper()
	run := s.layout.RunDir(bundle(n), name)
	s.must(spool.Disk{Layout: s.layout}.Prepare(name, spool.Spec{Bundle: bundle(n), Attempt: 1, SubmissionName: s.submission(n, 1, bridge), RunDir: run}))
	s.write(filepath.Join(run, "result"))
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

// files are the files of an attempt.
func (s *site) files(n int, bridge string) []string {
	name := "/1-" + cmp.Or(bridge, s.book.ID)
	return []string{"runs/" + bundle(n) + name + "/result", "spool/" + bundle(n) + name + "/spec.json"}
}

func (s *site) want(files ...string) {
	s.Helper()
	slices.Sort(files)
	if diff := gocmp.Diff(files, s.tree()); diff != "" {
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
