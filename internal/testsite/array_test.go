package testsite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// refusesOnce lists the submissions, and refuses the first array with an error of a limit.
const refusesOnce = `case "$*" in *--version*|*--test-only*) exec $BIN/sbatch "$@";; esac
for word; do
  case "$word" in --array=*) echo "$word" >>$HERE/arrays
    if mkdir $HERE/refused 2>/dev/null; then
      echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)" >&2
      exit 1
    fi;;
  esac
done
echo one >>$HERE/submissions
exec $BIN/sbatch "$@"
`

// Members of a sweep go to Slurm as arrays. The first one is refused, and a task that runs and one that waits are killed; all others end
// well, each by a task of its own.
func TestSweepGoesAsArraysOnRealSlurm(t *testing.T) {
	t.Parallel()
	need(t)
	bin := wrapped(t, map[string]string{"sbatch": refusesOnce})
	testenv.Must(t, os.Chmod(bin, 0o777)) // the researcher's sbatch writes its lists there
	s := own(t, testsite.Options{
		Config: often(bin),
		Queues: "\n[queue.cpu]\ndefault = true\npartition = \"short\"\naccount = \"lab\"\nmax_time = \"10m\"\narray_tasks = 50\n",
	})
	const runs = 24
	cl(t, s, "run", "--request-queue", "cpu", "--request-cpus", "30", "--sweep", "arr", "--each", fmt.Sprintf("i=1..%d", runs),
		"echo member {i}; until test -e finish; do sleep 0.1; done")
	bundles := strings.Fields(cl(t, s, "search", ".mine", ".limit=100", "--uuid-only"))
	if len(bundles) != runs {
		t.Fatalf("%d bundles", len(bundles))
	}
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
		return len(jobs) == runs
	}, &status)
	tasks := 0
	for _, job := range jobs {
		if _, _, ok := job.ArrayTask(); ok {
			tasks++
		}
	}
	taken, err := os.ReadFile(filepath.Join(bin, "submissions"))
	testenv.Must(t, err)
	submissions := strings.Count(string(taken), "one")
	t.Logf("%d runs, %d of them tasks of arrays, in %d submissions that Slurm took", runs, tasks, submissions)
	if tasks < runs/2 || submissions > runs/2 {
		t.Errorf("so few runs share submissions:\n%s", status)
	}
	for job, bundle := range map[string]string{jobs[bundles[0]].String(): bundles[0], jobs[bundles[runs-1]].String(): bundles[runs-1]} {
		if out := bridge(t, s, "explain", job); !strings.Contains(out, bundle) {
			t.Errorf("explain %s tells of\n%s", job, out)
		}
	}

	killed := map[string]bool{}
	for _, state := range []string{"running", "preparing"} { // it runs, and it waits
		var victim string
		testenv.Await(t, "a task is "+state, func() bool {
			i := slices.IndexFunc(bundles, func(bundle string) bool { return !killed[bundle] && field(t, s, bundle, "state") == state })
			if i >= 0 {
				victim = bundles[i]
			}
			return i >= 0
		})
		killed[victim] = true
		cl(t, s, "kill", victim)
		if end := ended(t, s, victim); end != "killed" {
			t.Errorf("a killed member that was %s is %s", state, end)
		}
	}
	left := slices.DeleteFunc(slices.Clone(bundles), func(bundle string) bool { return killed[bundle] })
	testenv.Await(t, "all end", func() bool { // in the order in which Slurm starts their tasks
		left = slices.DeleteFunc(left, func(bundle string) bool { permit(t, s, bundle); return field(t, s, bundle, "state") == "ready" })
		return len(left) == 0
	})
	for i, bundle := range bundles {
		if killed[bundle] {
			continue
		}
		if out := cl(t, s, "cat", bundle+"/stdout"); !strings.HasPrefix(out, "member ") {
			t.Errorf("member %d printed %q", i, out)
		}
		if said := explain(t, s, bundle); said.Attempt != 1 || said.Job != jobs[bundle] {
			t.Errorf("member %d ended at attempt %d, job %s; its task was %s", i, said.Attempt, said.Job, jobs[bundle])
		}
	}
	ids := []string{}
	for _, job := range jobs {
		ids = append(ids, job.String())
	}
	testenv.Await(t, "no task is left in Slurm", func() bool {
		return strings.TrimSpace(must(t, s, "squeue", "--me", "--noheader", "--format=%i", "--jobs="+strings.Join(ids, ","))) == ""
	})
	testenv.Await(t, "the list of members is removed", func() bool {
		left, err := filepath.Glob(filepath.Join(s.Shared, "spool", "arrays", "*.json"))
		return err == nil && len(left) == 0
	})
}
