package testsite_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

var kills = flag.Int("kills", 3, "the number of workers that TestKilledWorkersOfASweepBeginNothingTwice kills in each queue")

// While a sweep runs, as arrays and as packs, workers are killed by SIGKILL. Every run gets ready, each attempt begins at most once, and the
// last one of each run did begin. By Slurm's accounting, an array had a task for each attempt.
func TestKilledWorkersOfASweepBeginNothingTwice(t *testing.T) {
	t.Parallel()
	need(t)
	for name, shares := range map[string]string{
		"arrays": "array_tasks = 50\n", "packs": "pack_runs = 20\npack_side_by_side = 4\npack_time = \"8m\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := testenv.SharedDir(t)
			testenv.Must(t, os.Chmod(dir, 0o755))
			j, err := testsite.NewJournal(dir)
			testenv.Must(t, err)
			t.Cleanup(func() { testenv.Must(t, j.Close()) })
			s := own(t, testsite.Options{
				Config: "max_attempts = 50\n" + often(""),
				Queues: "\n[queue.cpu]\ndefault = true\npartition = \"short\"\naccount = \"lab\"\nmax_time = \"10m\"\ndefault_time = \"1m\"\nretry_begun = \"on_platform\"\n" +
					shares + testsite.JournalBind(dir),
			})
			attempts := killWorkers(t, s, j, filepath.Join(dir, "killed"))
			jobs := map[string]int{}
			testenv.Await(t, "Slurm's accounting has all jobs", func() bool {
				jobs, err = s.Accounted(t.Context())
				testenv.Must(t, err)
				return jobs["RUNNING"]+jobs["PENDING"] == 0 && (name == "packs" || jobs["COMPLETED"]+jobs["FAILED"] == attempts)
			}, &attempts, &jobs)
			t.Logf("%d attempts; jobs in sacct: %v", attempts, jobs)
		})
	}
}

// killWorkers makes a sweep, and kills workers while it runs. One run in eight waits for a file in the journal's directory, which is made
// after the last kill: until then there is a worker. It returns the number of all attempts.
func killWorkers(t *testing.T, s *testsite.Site, j *testsite.Journal, last string) (all int) {
	t.Helper()
	const runsPerKill = 8
	waits := fmt.Sprintf("[ $(({i} %% %d)) != 0 ] || until [ -e /journal/%s ]; do sleep 0.5; done", runsPerKill, filepath.Base(last))
	bundles := sweepOf(t, s, runsPerKill**kills, testsite.Journals+"; sleep 0.{i}; "+waits, "--request-cpus", "1", "--request-memory", "64m")
	for killed := range *kills {
		testenv.Await(t, "further runs begin", func() bool { return j.Count() > killed*runsPerKill/2 })
		testenv.Await(t, "a worker is killed", func() bool { return s.KillWorker(t.Context()) })
	}
	testenv.Must(t, os.WriteFile(last, nil, 0o644))
	var states map[string]int
	testenv.Await(t, "all end", func() bool {
		states = map[string]int{}
		for line := range strings.Lines(cl(t, s, append([]string{"info", "-f", "state"}, bundles...)...)) {
			states[strings.TrimSpace(line)]++
		}
		return states["ready"]+states["failed"] == len(bundles)
	}, &states)
	attempts := map[int]int{}
	for _, bundle := range bundles {
		if state := field(t, s, bundle, "state"); state != "ready" {
			t.Errorf("%s is %s: %s", bundle, state, field(t, s, bundle, "failure_message"))
			continue
		}
		last := explain(t, s, bundle).Attempt
		attempts[last]++
		all += last
		if j.Times(bundle, last) != 1 {
			t.Errorf("the last attempt of %s, %d, began %d times", bundle, last, j.Times(bundle, last))
		}
	}
	if twice := j.Twice(); len(twice) > 0 {
		t.Errorf("began more than once: %s", twice)
	}
	t.Logf("%d runs ready, %d workers killed, %d commands begun; runs by their attempts: %v", len(bundles), *kills, j.Count(), attempts)
	return all
}
