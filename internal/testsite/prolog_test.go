package testsite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// TestI10NodeThatCannotLaunchJobsFailsNoBundleOnRealSlurm: the prolog of n3 fails for the jobs of the test's
// partition. slurmd then cancels a job as user 0, which looks like an administrator's scancel.
func TestI10NodeThatCannotLaunchJobsFailsNoBundleOnRealSlurm(t *testing.T) {
	t.Parallel()
	need(t)
	partition := "cltest-prolog-" + uuid.NewString()[:8]
	admin(t, "scontrol", "create", "PartitionName="+partition, "Nodes=n[3-4]", "MaxTime=2:00:00")
	t.Cleanup(func() { admin(t, "scontrol", "delete", "PartitionName="+partition) })
	// scripts/lib/cluster/config.bash: prolog
	fails := filepath.Join(filepath.Dir(slurmcluster.Chosen().Conf), "../run/prolog", partition+".n3")
	if err := os.WriteFile(fails, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mend := func() { // slurmctld drains a node whose prolog fails: other tests wait for it
		_ = os.Remove(fails)
		_ = tryAdmin(t, "scontrol", "update", "NodeName=n3", "State=RESUME")
	}
	t.Cleanup(mend)
	s := own(t, testsite.Options{
		Config: often(""),
		Queues: fmt.Sprintf("\n[queue.cpu]\ndefault = true\npartition = %q\ndefault_time = \"1h\"\n", partition),
	})

	// A node has 64 CPUs: while one bundle runs on n4, the other one's job has to begin on n3.
	var bundles []string
	for range 2 {
		bundles = append(bundles, run(t, s, "cpu", "while test ! -e go; do sleep 0.5; done", "--request-cpus", "40"))
	}
	launch := regexp.MustCompile(`^attempt 1 failed: Slurm ended job \d+ on n3 before its worker began, as it does if a node cannot launch a job: `)
	var failed string
	testenv.Await(t, "the job that n3 could not launch counts as n3's failure", func() bool {
		for _, bundle := range bundles {
			said, _ := explained(t, s, bundle)
			if slices.ContainsFunc(said.History, func(e entry) bool { return launch.MatchString(e.Reason) }) {
				failed = bundle
			}
		}
		return failed != ""
	})
	mend()
	if failed == bundles[0] { // the other one may be on n4, where this one is to run
		slices.Reverse(bundles)
	}
	for _, bundle := range bundles {
		until(t, s, bundle, "state", "^running$")
		testenv.Must(t, s.GoOn(t.Context(), bundle))
		ready(t, s, bundle)
	}
	if remote := field(t, s, failed, "remote"); remote != "n4" {
		t.Errorf("it ran on %q, want n4", remote)
	}
}
