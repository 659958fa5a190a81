package testsite_test

import (
	"context"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/admin/costs"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// The tests of this file have a controller of their own, and no accounting database.

// bareQueue is the configuration of the queue of a bare cluster.
const bareQueue = "\n[queue.cpu]\ndefault = true\npartition = \"" + slurmcluster.BarePartition + "\"\ndefault_time = \"1h\"\n"

// onBare starts a site on a bare cluster.
func onBare(t *testing.T, bare *slurmcluster.Bare) *testsite.Site {
	t.Helper()
	return own(t, testsite.Options{Slurm: bare.Cluster, Queues: bareQueue, Config: often("")})
}

// ofBare runs a command of Slurm as root, as a client of a bare cluster.
func ofBare(t *testing.T, bare *slurmcluster.Bare, args ...string) {
	t.Helper()
	args[0] = filepath.Join(bare.Bin, args[0])
	testenv.Must(t, command.Command{Args: args, Env: bare.Env()}.Run(context.WithoutCancel(t.Context())))
}

// The load contract: however many jobs wait, the bridge asks the controller less than once in two seconds, with all of
// its questions for jobs, places, nodes and settings. Submissions count apart.
func TestObservationIsBelowHalfARequestASecond(t *testing.T) {
	t.Parallel()
	// The bridge of this test observes each second. By default it has six seconds for a snapshot.
	const jobs, snapshots, usualPause, most = 20, 20, 6, 0.5
	need(t)
	bare := testenv.BareSlurm(t)
	ofBare(t, bare, "sbatch", "--exclusive", "--time=60", "--output=/dev/null", "--chdir=/", "--wrap=sleep 3600")
	before, err := bare.Requests(t.Context())
	testenv.Must(t, err)
	s := onBare(t, bare)
	var bundles []string
	for range jobs {
		bundles = append(bundles, run(t, s, "cpu", "true"))
	}
	until(t, s, bundles[jobs-1], "run_status", `ahead of it`)
	waiting, err := bare.Requests(t.Context())
	testenv.Must(t, err)
	var now slurmcluster.Requests
	testenv.Await(t, "the bridge has observed its waiting jobs many times", func() bool {
		now, err = bare.Requests(t.Context())
		testenv.Must(t, err)
		return now.Since(waiting).ByType["REQUEST_JOB_USER_INFO"] >= snapshots
	})
	asked := now.Since(before)
	t.Logf("%d waiting jobs: %v by the bridge's user; by type %v", jobs, asked.ByUser[testsite.User], asked.ByType)
	submitted := asked.ByType["REQUEST_SUBMIT_BATCH_JOB"]
	if submitted != jobs || asked.ByType["REQUEST_JOB_INFO"] == 0 || asked.ByType["REQUEST_NODE_INFO"] == 0 {
		t.Errorf("the bridge did not submit each job once, or asked for no places or no nodes: %v", asked.ByType)
	}
	seconds := usualPause * asked.ByType["REQUEST_JOB_USER_INFO"]
	if rate := float64(asked.ByUser[testsite.User]-submitted) / float64(seconds); rate >= most {
		t.Errorf("%.3f requests a second at the usual pause: %v", rate, asked.ByType)
	}
	counted := []string{
		"REQUEST_ASSOC_MGR_INFO", "REQUEST_BUILD_INFO", "REQUEST_JOB_INFO", "REQUEST_JOB_USER_INFO", "REQUEST_NODE_INFO", "REQUEST_PARTITION_INFO", "REQUEST_PING", "REQUEST_SUBMIT_BATCH_JOB",
	}
	of := int64(0)
	for _, kind := range counted {
		of += asked.ByType[kind]
	}
	if of != asked.ByUser[testsite.User] {
		t.Errorf("the bridge's user has %d requests, of which %d are of the known types: %v", asked.ByUser[testsite.User], of, slices.Sorted(maps.Keys(asked.ByType)))
	}
}

// A site without slurmdbd runs bundles to all of their ends, and says which facts it lacks.
func TestSiteWithoutAccountingRunsAllAndSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	need(t)
	bare := testenv.BareSlurm(t)
	s := onBare(t, bare)
	running := run(t, s, "cpu", "sleep 3000")
	cancelled := run(t, s, "cpu", "sleep 3000")
	lost := run(t, s, "cpu", "sleep 3000")
	ends := map[string]struct{ bundle, state, failure string }{
		"success":    {run(t, s, "cpu", "echo once"), "ready", "^None$"},
		"failure":    {run(t, s, "cpu", "exit 3"), "failed", "^Exit code 3"},
		"time limit": {run(t, s, "cpu", "sleep 3000", "--request-time", "2s"), "failed", "^Time limit exceeded"},
		"killed":     {running, "killed", "^Kill requested"},
		"cancelled":  {cancelled, "failed", "(?i)cancelled"},
	}
	begun(t, s, running)
	cl(t, s, "kill", running)
	ofBare(t, bare, "scancel", begun(t, s, cancelled))
	// The worker has no time for an exit record.
	ofBare(t, bare, "scancel", "--signal=KILL", "--batch", begun(t, s, lost))
	for name, want := range ends {
		state := ended(t, s, want.bundle)
		said := field(t, s, want.bundle, "failure_message")
		t.Logf("%s: %s, %s", name, state, said)
		if state != want.state || !regexp.MustCompile(want.failure).MatchString(said) {
			t.Errorf("%s: %s, %q; want %s and %q", name, state, said, want.state, want.failure)
		}
	}
	ranOnce(t, s, ends["success"].bundle)
	state := ended(t, s, lost)
	t.Logf("killed without a record: %s, %s", state, field(t, s, lost, "failure_message"))
	if state != "failed" || len(begins(t, s, lost)) != 1 {
		t.Errorf("killed without a record: %s, begun %d times", state, len(begins(t, s, lost)))
	}

	var r costs.Report
	testenv.Await(t, "the report has all jobs", func() bool {
		r = reported(t, s, s.BridgeConfig())
		return len(r.Jobs) == len(ends)+1
	})
	if r.Note != "This site has no accounting database. All times are the bridge's, and energy is not known." || r.Total.Unaccounted != len(r.Jobs) || r.Jobs[0].Source != costs.FromBridge {
		t.Errorf("report: %q, %+v", r.Note, r.Total)
	}
	for name, said := range map[string]string{"status": status(t, s), "doctor": bridge(t, s, "doctor")} {
		if !strings.Contains(said, "so these are not known: "+plan.UnknownWithoutAccounting) {
			t.Errorf("%s:\n%s", name, said)
		}
	}
	if said := status(t, s); !strings.Contains(said, "\nNothing holds it up.\n") {
		t.Errorf("status:\n%s", said)
	}
}
