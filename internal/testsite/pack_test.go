package testsite_test

import (
	"fmt"
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

// Runs of a sweep share jobs, four side by side. One that runs and one that waits for its turn are killed, and all others end well, each with
// its own output.
func TestSweepSharesJobsOnRealSlurm(t *testing.T) {
	t.Parallel()
	need(t)
	s := own(t, testsite.Options{Config: often(""), Queues: packQueue(4)})
	bundles := sweepOf(t, s, 20, "echo member {i}; until test -e finish; do sleep 0.5; done", "--request-cpus", "1", "--request-memory", "200m")
	jobs := jobsOf(t, s, bundles)
	distinct := map[sbatch.JobID]int{}
	for _, job := range jobs {
		distinct[job]++
	}
	t.Logf("%d runs in %d jobs: %v", len(bundles), len(distinct), distinct)
	if len(distinct) > 5 {
		t.Errorf("so few runs share jobs: %v", distinct)
	}
	othersEndWell(t, s, bundles, killTwo(t, s, bundles), jobs)
	nothingIsLeft(t, s, jobs)
}

// A run that comes later joins a pack that has a free place: it begins while the others run, in the same job.
func TestLaterRunJoinsAPackOnRealSlurm(t *testing.T) {
	t.Parallel()
	need(t)
	s := own(t, testsite.Options{Config: often(""), Queues: packQueue(3)})
	flags := []string{"--request-cpus", "1", "--request-memory", "200m"}
	bundles := sweepOf(t, s, 3, "echo member {i}; until test -e finish; do sleep 0.5; done", flags...)
	jobs := jobsOf(t, s, bundles)
	for _, job := range jobs {
		if job != jobs[bundles[0]] {
			t.Fatalf("the runs have no common job: %v", jobs)
		}
	}
	testenv.Await(t, "all three run", func() bool {
		return !slices.ContainsFunc(bundles, func(bundle string) bool { return field(t, s, bundle, "state") != "running" })
	})
	permit(t, s, bundles[0])
	testenv.Await(t, "one has ended", func() bool { return field(t, s, bundles[0], "state") == "ready" })
	run := append([]string{"run", "--request-queue", "cpu"}, flags...)
	later := strings.TrimSpace(cl(t, s, append(run, "echo member later; until test -e finish; do sleep 0.5; done")...))
	all := append(slices.Clone(bundles), later)
	jobs = jobsOf(t, s, all)
	if jobs[later] != jobs[bundles[1]] {
		t.Errorf("the later run has job %s, and the pack is job %s", jobs[later], jobs[bundles[1]])
	}
	testenv.Await(t, "the later one runs", func() bool { return field(t, s, later, "state") == "running" })
	for _, bundle := range bundles[1:] {
		if state := field(t, s, bundle, "state"); state != "running" {
			t.Errorf("%s is %s", bundle, state)
		}
	}
	othersEndWell(t, s, all[1:], nil, jobs)
	nothingIsLeft(t, s, jobs)
}

// The worker of a pack is killed by SIGKILL. What it had begun fails, as RetryBegun is not set, and begins no second time; what it had not begun goes on
// in another job.
func TestKilledWorkerOfAPackBeginsNothingTwice(t *testing.T) {
	t.Parallel()
	need(t)
	s := own(t, testsite.Options{Config: often(""), Queues: packQueue(3)})
	bundles := sweepOf(t, s, 12, "echo begun {i} >> begun; until test -e finish; do sleep 0.5; done", "--request-cpus", "1", "--request-memory", "200m")
	jobsOf(t, s, bundles)
	var began []string
	testenv.Await(t, "three run", func() bool {
		began = slices.DeleteFunc(slices.Clone(bundles), func(bundle string) bool { return field(t, s, bundle, "state") != "running" })
		return len(began) >= 3
	})
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
