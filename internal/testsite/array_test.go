package testsite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
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
	bundles := sweepOf(t, s, runs, "echo member {i}; until test -e finish; do sleep 0.5; done", "--request-cpus", "30")
	jobs := jobsOf(t, s, bundles)
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
		t.Errorf("so few runs share submissions: %v", jobs)
	}
	for job, bundle := range map[string]string{jobs[bundles[0]].String(): bundles[0], jobs[bundles[runs-1]].String(): bundles[runs-1]} {
		if out := bridge(t, s, "explain", job); !strings.Contains(out, bundle) {
			t.Errorf("explain %s tells of\n%s", job, out)
		}
	}
	othersEndWell(t, s, bundles, killTwo(t, s, bundles), jobs)
	nothingIsLeft(t, s, jobs)
}
