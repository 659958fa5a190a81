package sbatch_test

import (
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// requestsOf returns the requests that the controller has while ask runs, by type. Those of daemons are not among them,
// nor those that ask for the numbers.
func requestsOf(t *testing.T, cluster slurmcluster.Cluster, ask func() error) map[string]int64 {
	t.Helper()
	before, err := cluster.Requests(t.Context())
	testenv.Must(t, err)
	testenv.Must(t, ask())
	after, err := cluster.Requests(t.Context())
	testenv.Must(t, err)
	asked := after.Since(before).ByType
	maps.DeleteFunc(asked, func(kind string, _ int64) bool {
		return !strings.HasPrefix(kind, "REQUEST_") || kind == "REQUEST_STATS_INFO"
	})
	return asked
}

// The load contract counts on these numbers, which sdiag shows: however many jobs there are, a question costs the same. The
// user is root, for whom squeue --me is a REQUEST_JOB_INFO; for others it is a REQUEST_JOB_USER_INFO.
func TestQuestionsCostTheControllerTheSameForAnyNumberOfJobs(t *testing.T) {
	t.Parallel()
	bare := testenv.BareSlurm(t)
	c := &sbatch.Client{Bin: bare.Bin, Conf: bare.Conf}
	held := func(name string) sbatch.Request {
		return sbatch.Request{Name: name, Script: "#!/bin/sh\n", Dir: "/", Output: "/dev/null", MemoryMiB: 1, Extra: []string{"--hold"}}
	}
	submit := func() (id sbatch.JobID) {
		id, err := c.Submit(t.Context(), held("counted"))
		testenv.Must(t, err)
		return id
	}
	first := submit()
	questions := map[string]struct {
		ask  func() error
		want map[string]int64
	}{
		"Observe":    {func() error { _, err := c.Observe(t.Context(), time.Now()); return err }, map[string]int64{"REQUEST_PARTITION_INFO": 1, "REQUEST_JOB_INFO": 1}},
		"Turns":      {func() error { _, err := c.Turns(t.Context(), []sbatch.JobID{first}); return err }, map[string]int64{"REQUEST_PARTITION_INFO": 1, "REQUEST_JOB_INFO": 1}},
		"Partitions": {func() error { _, err := c.Partitions(t.Context()); return err }, map[string]int64{"REQUEST_PARTITION_INFO": 1, "REQUEST_NODE_INFO": 1}},
		"Settings":   {func() error { _, err := c.Settings(t.Context()); return err }, map[string]int64{"REQUEST_BUILD_INFO": 1, "REQUEST_PING": 1}},
		"Describe":   {func() error { _, err := c.Describe(t.Context(), first); return err }, map[string]int64{"REQUEST_PARTITION_INFO": 1, "REQUEST_JOB_INFO_SINGLE": 1}},
		"Try":        {func() error { return c.Try(t.Context(), held("tried")) }, map[string]int64{"REQUEST_FED_INFO": 1, "REQUEST_JOB_WILL_RUN": 1}},
		"Expect":     {func() error { _, err := c.Expect(t.Context(), held("tried")); return err }, map[string]int64{"REQUEST_FED_INFO": 1, "REQUEST_JOB_WILL_RUN": 1}},
		"Submit":     {func() error { submit(); return nil }, map[string]int64{"REQUEST_SUBMIT_BATCH_JOB": 1}},
		"Cancel of tasks": {
			func() error {
				r := held("array")
				r.Tasks = 50
				id, err := c.Submit(t.Context(), r)
				testenv.Must(t, err)
				return c.Cancel(t.Context(), r.Name, id.Task(1), id.Task(7), id.Task(8), id.Task(40))
			}, map[string]int64{"REQUEST_SUBMIT_BATCH_JOB": 1, "REQUEST_PARTITION_INFO": 1, "REQUEST_JOB_INFO_SINGLE": 1, "REQUEST_KILL_JOB": 1},
		},
		"Cancel": {func() error { return c.Cancel(t.Context(), "", submit()) }, map[string]int64{"REQUEST_SUBMIT_BATCH_JOB": 1, "REQUEST_KILL_JOB": 1}},
	}
	for _, jobs := range []int{1, 100} {
		for range jobs {
			submit()
		}
		for name, q := range questions {
			if diff := cmp.Diff(q.want, requestsOf(t, bare.Cluster, q.ask)); diff != "" {
				t.Errorf("%s with %d jobs (-want +got):\n%s", name, jobs, diff)
			}
		}
	}
}

// A question to the accounting database costs the controller nothing, and a site without one is told from one whose
// database does not answer.
func TestSiteWithoutAccountingSaysSo(t *testing.T) {
	t.Parallel()
	bare := testenv.BareSlurm(t)
	c := &sbatch.Client{Bin: bare.Bin, Conf: bare.Conf}
	settings, err := c.Settings(t.Context())
	if err != nil || settings.Accounting || settings.Cluster != "bare" {
		t.Errorf("%+v, %v", settings, err)
	}
	now := time.Now()
	for name, ask := range map[string]func() error{
		"QueryAccounting": func() error {
			_, err := c.QueryAccounting(t.Context(), now.Add(-time.Hour), sbatch.Which{IDs: []sbatch.JobID{1}})
			return err
		},
		"QueryCharges":   func() error { _, err := c.QueryCharges(t.Context(), now.Add(-time.Hour), now, true); return err },
		"QueryChargesOf": func() error { _, err := c.QueryChargesOf(t.Context(), now.Add(-time.Hour), 1, 2); return err },
	} {
		var said error
		asked := requestsOf(t, bare.Cluster, func() error { said = ask(); return nil })
		if !errors.Is(said, sbatch.ErrNoAccounting) || len(asked) > 0 {
			t.Errorf("%s: %v, after the requests %v", name, said, asked)
		}
	}
	away := &sbatch.Client{Bin: t.TempDir()}
	testenv.WriteProgram(t, filepath.Join(away.Bin, "sacct"), []byte("#!/bin/sh\necho 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1\n"))
	if _, err := away.QueryCharges(t.Context(), now.Add(-time.Hour), now, false); err == nil || errors.Is(err, sbatch.ErrNoAccounting) {
		t.Errorf("a database that does not answer: %v", err)
	}
}
