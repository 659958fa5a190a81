package explained_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// sweep is a sweep of 200 runs in a queue whose runs share submissions, on two nodes of its own.
type sweep struct {
	*testsite.Site
	s *slurm
	sweepKind
}

// sweepKind is a way in which runs share submissions.
type sweepKind struct {
	// nodes are two that no other test uses: some drain theirs for as long as they run.
	name, nodes, queue string
	// lost is the node that loses its network.
	lost string
	// refused is a pattern of sh for the arguments of a submission that runs share.
	refused string
	// alone is set if each run has a job of its own.
	alone bool
}

// A sweep of 200 goes as arrays, or as packs. Slurm refuses the first submission of several, one run that runs and one that waits are killed,
// and a node loses its network while runs of the sweep are on it. Each run begins once. All are ready, except for the killed ones and for those
// that had begun on the lost node; and where each has a job, Slurm's accounting
// has as many of each end.
//
//nolint:paralleltest // 48 containers at a time leave a small machine no time for the other tests' jobs, and their nodes seem to be down
func TestSweepOf200LosesANodeOnRealSlurm(t *testing.T) {
	s := start(t)
	for _, kind := range []sweepKind{
		{name: "arrays", nodes: "n[23,25]", queue: "array_tasks = 250\n", lost: "n23", refused: "*' --array='*", alone: true},
		{name: "packs", nodes: "n[24,26]", queue: "pack_runs = 30\npack_side_by_side = 8\npack_time = \"30m\"\n", lost: "n24", refused: "*'pack='*"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s.root(t, "scontrol", "create", "PartitionName=sweep"+kind.name, "Nodes="+kind.nodes, "MaxTime=60")
			bin := s.refusesFirst(t, kind.refused)
			queue := "\n[queue.cpu]\ndefault = true\npartition = \"sweep" + kind.name + "\"\naccount = \"lab\"\ndefault_time = \"5m\"\n" + kind.queue
			started, err := testsite.Start(t.Context(), testsite.Options{
				Config: fmt.Sprintf("[slurm]\nobserve_every = \"1s\"\nbin = %q\n", bin), Queues: queue,
			})
			testenv.Must(t, err)
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(started.Log())
				}
				testenv.Must(t, started.Close())
			})
			sweep{started, s, kind}.losesANode(t)
			if _, err := os.Stat(filepath.Join(bin, "refused")); err != nil {
				t.Errorf("nothing was refused: %v", err)
			}
		})
	}
}

// refusesFirst returns a directory of Slurm's commands, whose sbatch refuses the first submission whose arguments match a pattern of sh.
func (s *slurm) refusesFirst(t *testing.T, pattern string) string {
	t.Helper()
	dir := testenv.SharedDir(t)
	testenv.Must(t, os.Chmod(dir, 0o777)) // the researcher's sbatch writes there
	for _, name := range []string{"squeue", "sacct", "scancel", "scontrol", "sinfo"} {
		testenv.Must(t, os.Symlink(filepath.Join(s.Bin, name), filepath.Join(dir, name)))
	}
	const script = `#!/bin/sh
case " $*" in
*--test-only*) ;;
%[3]s) if mkdir %[1]s/refused 2>/dev/null; then
  echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)" >&2
  exit 1
fi;;
esac
exec %[2]s/sbatch "$@"
`
	testenv.WriteProgram(t, filepath.Join(dir, "sbatch"), fmt.Appendf(nil, script, dir, s.Bin, pattern))
	return dir
}

// losesANode runs the sweep.
func (w sweep) losesANode(t *testing.T) {
	t.Helper()
	const runs = 200
	w.cl(t, "run", "--request-cpus", "4", "--request-memory", "64m", "--sweep", "sweep", "--each", fmt.Sprintf("i=1..%d", runs),
		"echo begun {i} >>begun; until test -e go; do sleep 1; done")
	bundles := strings.Fields(w.cl(t, "search", ".mine", fmt.Sprint(".limit=", 2*runs), "--uuid-only"))
	if len(bundles) != runs {
		t.Fatalf("%d bundles", len(bundles))
	}
	killed := map[string]bool{}
	for _, state := range []string{"running", "preparing"} {
		found := w.until(t, "a run is "+state, bundles, func(r run) bool { return r.state == state && r.node != w.lost })
		for bundle := range found {
			killed[bundle] = true
			w.cl(t, "kill", bundle)
			break
		}
	}
	onLost := w.until(t, "runs are on "+w.lost, bundles, func(r run) bool { return r.state == "running" && r.node == w.lost })
	w.s.root(t, "ip", "link", "set", w.s.Bridge+"-"+w.lost, "down")
	t.Cleanup(func() { _, _ = w.s.try("ip", "link", "set", w.s.Bridge+"-"+w.lost, "up") })
	permitted := map[string]bool{}
	var last map[string]run
	testenv.Await(t, "all end", func() bool {
		last = w.runs(t, bundles)
		left := 0
		for bundle, r := range last {
			switch r.state {
			case "ready", "failed", "killed":
				continue
			case "running":
				if _, isLost := onLost[bundle]; !isLost && !killed[bundle] && !permitted[bundle] && r.node != w.lost {
					permitted[bundle] = true
					w.permit(t, bundle)
				}
			}
			left++
		}
		return left == 0
	}, &last)
	ends := map[string]int{}
	for bundle, r := range last {
		ends[r.state]++
		switch {
		case (r.state == "killed") != killed[bundle]:
			t.Errorf("%s is %s on %s; killed: %t", bundle, r.state, r.node, killed[bundle])
		case r.state == "failed" && r.node != w.lost:
			t.Errorf("%s failed on %s: %s", bundle, r.node, w.cl(t, "info", "-f", "failure_message", bundle))
		case r.state == "ready":
			if out := w.cl(t, "cat", bundle+"/begun"); strings.Count(out, "begun") != 1 {
				t.Errorf("%s began as %q", bundle, out)
			}
		}
	}
	t.Logf("%d runs: %v; %d ran on %s as its network ended", runs, ends, len(onLost), w.lost)
	if ends["failed"] < len(onLost) {
		t.Errorf("%d runs failed, and %d ran on the lost node", ends["failed"], len(onLost))
	}
	w.accounts(t, ends)
}

// accounts waits until Slurm's accounting, which lags behind, has the ends of all jobs, as many of each as runs end so if each run has a job.
func (w sweep) accounts(t *testing.T, ends map[string]int) {
	t.Helper()
	var counts map[string]int
	testenv.Await(t, "Slurm's accounting has the ends of all jobs", func() bool {
		counts = map[string]int{}
		for state := range strings.FieldsSeq(w.s.owner(t, "sacct", "--allocations", "--noheader", "--partition=sweep"+w.name, "--format=State")) {
			counts[state]++
		}
		return counts["PENDING"]+counts["RUNNING"] == 0 && (!w.alone || counts["COMPLETED"] == ends["ready"] && counts["NODE_FAIL"] == ends["failed"])
	}, &ends, &counts)
	t.Logf("jobs in sacct: %v", counts)
}

// run is a bundle's state, and the node where it is or was.
type run struct{ state, node string }

// runs returns the states of bundles.
func (w sweep) runs(t *testing.T, bundles []string) map[string]run {
	t.Helper()
	found := map[string]run{}
	for line := range strings.Lines(w.cl(t, append([]string{"info", "-f", "uuid,state,remote"}, bundles...)...)) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(f) == 3 {
			found[f[0]] = run{f[1], f[2]}
		}
	}
	return found
}

// until waits until some bundles are as wanted, and returns those.
func (w sweep) until(t *testing.T, what string, bundles []string, wanted func(run) bool) map[string]bool {
	t.Helper()
	var found map[string]bool
	testenv.Await(t, what, func() bool {
		found = map[string]bool{}
		for bundle, r := range w.runs(t, bundles) {
			if wanted(r) {
				found[bundle] = true
			}
		}
		return len(found) > 0
	})
	return found
}

// permit lets the command of a bundle that runs end.
func (w sweep) permit(t *testing.T, bundle string) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(w.Shared, "runs", bundle, "*-*"))
	testenv.Must(t, err)
	for _, dir := range dirs {
		testenv.Must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	}
}

// cl runs cl as the researcher; it has to succeed.
func (w sweep) cl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.CL(t.Context(), args...)
	if err != nil {
		t.Fatalf("cl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}
