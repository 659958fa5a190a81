package testsite_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// sweepOf makes a sweep of runs with the flags, and returns their bundles.
func sweepOf(t *testing.T, s *testsite.Site, runs int, command string, flags ...string) []string {
	t.Helper()
	args := append([]string{"run", "--request-queue", "cpu", "--sweep", "sweep", "--each", fmt.Sprintf("i=1..%d", runs)}, flags...)
	cl(t, s, append(args, command)...)
	bundles := strings.Fields(cl(t, s, "search", ".mine", fmt.Sprint(".limit=", 2*runs), "--uuid-only"))
	if len(bundles) != runs {
		t.Fatalf("%d bundles", len(bundles))
	}
	return bundles
}

// jobsOf waits until all bundles have a job, and returns the jobs.
func jobsOf(t *testing.T, s *testsite.Site, bundles []string) map[string]sbatch.JobID {
	t.Helper()
	jobs := map[string]sbatch.JobID{}
	status := ""
	testenv.Await(t, "all are in Slurm", func() bool {
		status = ""
		for _, bundle := range bundles {
			if said, known := explained(t, s, bundle); known && said.Job != 0 {
				jobs[bundle] = said.Job
				status += fmt.Sprintln(bundle, said.Phase, said.Job, said.Reason)
			}
		}
		return len(jobs) == len(bundles)
	}, &status)
	return jobs
}

// killTwo kills a bundle that runs and one that waits, and returns them.
func killTwo(t *testing.T, s *testsite.Site, bundles []string) (killed map[string]bool) {
	t.Helper()
	killed = map[string]bool{}
	for _, state := range []string{"running", "preparing"} { // it runs, and it waits
		var victim string
		testenv.Await(t, "a run is "+state, func() bool {
			i := slices.IndexFunc(bundles, func(bundle string) bool { return !killed[bundle] && field(t, s, bundle, "state") == state })
			if i >= 0 {
				victim = bundles[i]
			}
			return i >= 0
		})
		killed[victim] = true
		cl(t, s, "kill", victim)
		if end := ended(t, s, victim); end != "killed" {
			t.Errorf("a killed run that was %s is %s", state, end)
		}
	}
	return killed
}

// othersEndWell permits the end of the bundles that were not killed, whose commands print "member ". Each has to end with its own output, at its
// first attempt, in its job.
func othersEndWell(t *testing.T, s *testsite.Site, bundles []string, killed map[string]bool, jobs map[string]sbatch.JobID) {
	t.Helper()
	others := slices.DeleteFunc(slices.Clone(bundles), func(bundle string) bool { return killed[bundle] })
	left := slices.Clone(others)
	testenv.Await(t, "all end", func() bool { // in the order in which Slurm, or a pack's worker, starts them
		left = slices.DeleteFunc(left, func(bundle string) bool { permit(t, s, bundle); return field(t, s, bundle, "state") == "ready" })
		return len(left) == 0
	})
	for _, bundle := range others {
		if out := cl(t, s, "cat", bundle+"/stdout"); !strings.HasPrefix(out, "member ") {
			t.Errorf("%s printed %q", bundle, out)
		}
		if said := explain(t, s, bundle); said.Attempt != 1 || said.Job != jobs[bundle] {
			t.Errorf("%s ended at attempt %d, job %s; its job was %s", bundle, said.Attempt, said.Job, jobs[bundle])
		}
	}
}

// nothingIsLeft waits until Slurm has none of the jobs, and the disk no list of members.
func nothingIsLeft(t *testing.T, s *testsite.Site, jobs map[string]sbatch.JobID) {
	t.Helper()
	var ids []string
	for _, job := range jobs {
		ids = append(ids, job.String())
	}
	slices.Sort(ids)
	testenv.Await(t, "no job is left in Slurm", func() bool {
		return strings.TrimSpace(must(t, s, "squeue", "--me", "--noheader", "--format=%i", "--jobs="+strings.Join(slices.Compact(ids), ","))) == ""
	})
	testenv.Await(t, "the list of members is removed", func() bool {
		left, err := filepath.Glob(filepath.Join(s.Shared, "spool", "arrays", "*.json"))
		return err == nil && len(left) == 0
	})
}
