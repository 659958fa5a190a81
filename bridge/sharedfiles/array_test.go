package sharedfiles_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// array leaves the list of an array's members, and returns its path on the disk.
func (s *site) array(generation int, bundles ...int) string {
	s.Helper()
	m := spool.Members{Submission: fmt.Sprintf("%s.%d", s.book.ID, generation)}
	for _, n := range bundles {
		m.Attempts = append(m.Attempts, spool.Member{Bundle: bundle(n), Name: spool.NameAttempt(1, s.book.ID)})
	}
	s.must(spool.Disk{Layout: s.layout}.WriteMembers(m))
	return "spool/arrays/" + m.Name() + ".json"
}

// task has Slurm show a job of an array, with the comment of the bridge or of the site.
func (s *site) task(id sbatch.JobID, generation int, stamped bool, state sbatch.State) {
	comment := "rewritten by the site"
	if stamped {
		comment = fmt.Sprintf("codalab tasks=3 owner=1 bridge=%s generation=%d", s.book.ID, generation)
	}
	name := fmt.Sprintf("cl-ann-%012x.1-%d-%s", 99, generation, s.book.ID)
	s.slurm.jobs = append(s.slurm.jobs, sbatch.Job{ID: id, Name: name, Comment: comment, State: state})
}

// The ledger was restored from an older copy: it has no rows of bundles whose tasks run.
func TestSweepKeepsTheFilesOfTasksWithoutARow(t *testing.T) {
	t.Parallel()
	const array = sbatch.JobID(7)
	for name, c := range map[string]struct {
		show func(s *site)
		kept []int
	}{
		"a task":                    {func(s *site) { s.task(array.Task(1), 0, true, sbatch.StateRunning) }, []int{2}},
		"a task that has ended":     {func(s *site) { s.task(array.Task(1), 0, true, sbatch.StateCompleted) }, []int{2}},
		"without a comment":         {func(s *site) { s.task(array.Task(2), 0, false, sbatch.StateRunning) }, []int{3}},
		"a large array as one job":  {func(s *site) { s.task(array, 0, true, sbatch.StatePending) }, []int{1, 2, 3}},
		"no task":                   {func(*site) {}, nil},
		"no list of its members":    {func(s *site) { s.task(array.Task(0), 1, true, sbatch.StateRunning) }, []int{1, 2, 3}},
		"no list, but it has ended": {func(s *site) { s.task(array.Task(0), 1, true, sbatch.StateCompleted) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			for n := 1; n <= 3; n++ {
				s.attempt(n, "")
			}
			s.row(99, plan.Done, time.Time{}) // so that the ledger is not older than the arrays
			kept := []string{s.array(0, 1, 2, 3)}
			c.show(s)
			found := s.sweep()
			for _, n := range c.kept {
				kept = append(kept, s.files(n, "")...)
			}
			s.want(kept...)
			if len(found) != 2*(3-len(c.kept)) {
				s.Errorf("findings %+v", found)
			}
		})
	}
}

func TestSweepRemovesNothingIfAListOfMembersCannotBeRead(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.attempt(1, "")
	s.must(os.WriteFile(filepath.Join(string(s.layout), s.array(0, 1)), []byte("{"), 0o600))
	s.task(sbatch.JobID(7).Task(0), 0, true, sbatch.StateRunning)
	if found, err := s.Sweep(t.Context()); err == nil || found != nil {
		t.Errorf("found %+v, %v", found, err)
	}
	s.want(append(s.files(1, ""), s.array(0, 1))...)
}
