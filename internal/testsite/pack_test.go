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

// packQueue is a queue whose small bundles share jobs, so many at a time.
func packQueue(sideBySide int) string {
	return fmt.Sprintf("\n[queue.cpu]\ndefault = true\npartition = \"short\"\naccount = \"lab\"\nmax_time = \"10m\"\ndefault_time = \"2m\"\n"+
		"pack_runs = 50\npack_side_by_side = %d\npack_time = \"10m\"\n", sideBySide)
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

// sweepOf makes a sweep of runs, and returns their bundles.
func sweepOf(t *testing.T, s *testsite.Site, runs int, command string) []string {
	t.Helper()
	cl(t, s, "run", "--request-queue", "cpu", "--request-cpus", "1", "--request-memory", "200m", "--sweep", "pack", "--each", fmt.Sprintf("i=1..%d", runs), command)
	bundles := strings.Fields(cl(t, s, "search", ".mine", ".limit=100", "--uuid-only"))
	if len(bundles) != runs {
		t.Fatalf("%d bundles", len(bundles))
	}
	return bundles
}

// Runs of a sweep share jobs, four side by side. One that runs and one that waits for its turn are killed, and all others end well, each with
// its own output.
func TestSweepSharesJobsOnRealSlurm(t *testing.T) {
	t.Parallel()
	need(t)
	s := own(t, testsite.Options{Config: often(""), Queues: packQueue(4)})
	bundles := sweepOf(t, s, 20, "echo member {i}; until test -e finish; do sleep 0.1; done")
	jobs := jobsOf(t, s, bundles)
	distinct := map[sbatch.JobID]int{}
	for _, job := range jobs {
		distinct[job]++
	}
	t.Logf("%d runs in %d jobs: %v", len(bundles), len(distinct), distinct)
	if len(distinct) > 5 {
		t.Errorf("so few runs share jobs: %v", distinct)
	}
	killed := map[string]bool{}
	for _, state := range []string{"running", "preparing"} { // it runs, and it waits for its turn
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
	left := slices.DeleteFunc(slices.Clone(bundles), func(bundle string) bool { return killed[bundle] })
	testenv.Await(t, "all end", func() bool {
		left = slices.DeleteFunc(left, func(bundle string) bool { permit(t, s, bundle); return field(t, s, bundle, "state") == "ready" })
		return len(left) == 0
	})
	for i, bundle := range bundles {
		if killed[bundle] {
			continue
		}
		if out := cl(t, s, "cat", bundle+"/stdout"); !strings.HasPrefix(out, "member ") {
			t.Errorf("run %d printed %q", i, out)
		}
		if said := explain(t, s, bundle); said.Attempt != 1 || said.Job != jobs[bundle] {
			t.Errorf("run %d ended at attempt %d, job %s; its job was %s", i, said.Attempt, said.Job, jobs[bundle])
		}
	}
	testenv.Await(t, "no job is left in Slurm", func() bool {
		return strings.TrimSpace(must(t, s, "squeue", "--me", "--noheader", "--format=%i", "--jobs="+listOf(distinct))) == ""
	})
	testenv.Await(t, "the list of members is removed", func() bool {
		files, err := filepath.Glob(filepath.Join(s.Shared, "spool", "arrays", "*.json"))
		return err == nil && len(files) == 0
	})
}

func listOf(jobs map[sbatch.JobID]int) string {
	var ids []string
	for job := range jobs {
		ids = append(ids, job.String())
	}
	return strings.Join(ids, ",")
}

// The worker of a pack is killed by SIGKILL. What it had begun fails, as RetryBegun is not set, and begins no second time; what it had not begun goes on
// in another job.
func TestKilledWorkerOfAPackBeginsNothingTwice(t *testing.T) {
	t.Parallel()
	need(t)
	s := own(t, testsite.Options{Config: often(""), Queues: packQueue(3)})
	bundles := sweepOf(t, s, 12, "echo begun {i} >> begun; until test -e finish; do sleep 0.1; done")
	jobsOf(t, s, bundles)
	running := func() (n int) {
		for _, bundle := range bundles {
			if field(t, s, bundle, "state") == "running" {
				n++
			}
		}
		return n
	}
	testenv.Await(t, "three run", func() bool { return running() >= 3 })
	var began []string
	for _, bundle := range bundles {
		if field(t, s, bundle, "state") == "running" {
			began = append(began, bundle)
		}
	}
	must(t, s, "pkill", "-KILL", "-f", "cl-worker exec .*"+s.Shared+".* --side-by-side=3")
	left := slices.Clone(bundles)
	testenv.Await(t, "all end", func() bool {
		left = slices.DeleteFunc(left, func(bundle string) bool {
			state := field(t, s, bundle, "state")
			if !slices.Contains(began, bundle) {
				permit(t, s, bundle)
			}
			return state == "ready" || state == "failed"
		})
		return len(left) == 0
	})
	ready, failed := 0, 0
	for _, bundle := range bundles {
		if field(t, s, bundle, "state") == "ready" {
			ready++
			if out := cl(t, s, "cat", bundle+"/begun"); strings.Count(out, "begun") != 1 {
				t.Errorf("%s began as %q", bundle, out)
			}
		} else {
			failed++
			if !slices.Contains(began, bundle) {
				t.Errorf("%s had not begun, and failed: %s", bundle, field(t, s, bundle, "failure_message"))
			}
		}
	}
	t.Logf("%d ready, %d failed; %d ran as the worker was killed", ready, failed, len(began))
	if ready < len(bundles)-len(began) {
		t.Errorf("only %d are ready", ready)
	}
}
