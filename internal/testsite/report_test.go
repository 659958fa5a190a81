package testsite_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/admin/costs"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// reported runs cl-bridge report with a configuration.
func reported(t *testing.T, s *testsite.Site, config string) costs.Report {
	t.Helper()
	var r costs.Report
	out := must(t, s, program, "report", "--config", config, "--json")
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// billed asks sacct for a job by itself: its elapsed seconds, its CPUs and its GPUs.
func billed(t *testing.T, s *testsite.Site, job sbatch.JobID) (elapsed float64, cpus, gpus string) {
	t.Helper()
	out := must(t, s, "sacct", "-X", "-n", "-P", "--duplicates", "--jobs="+job.String(), "--format=ElapsedRaw,AllocTRES")
	seconds, tres, _ := strings.Cut(strings.TrimSpace(out), "|")
	n, err := strconv.Atoi(seconds)
	if err != nil {
		t.Fatalf("sacct of job %d: %q", job, out)
	}
	values := map[string]string{}
	for item := range strings.SplitSeq(tres, ",") {
		key, value, _ := strings.Cut(item, "=")
		values[key] = value
	}
	return float64(n), values["cpu"], values["gres/gpu"]
}

// The bill of a bundle is sacct's, and where a site has no database, the bridge's own clock is close to it.
func TestReportAgreesWithSacctWithinASecondAJob(t *testing.T) {
	t.Parallel()
	need(t)
	s := own(t, testsite.Options{Config: often("")})
	bundles := map[string]string{
		run(t, s, "cpu", "sleep 3"):                                                      "ready",
		run(t, s, "cpu", "exit 3", "--request-cpus", "2"):                                "failed",
		run(t, s, "gpu", "sleep 2", "--request-gpus", "2"):                               "ready",
		run(t, s, "short", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 1"): "ready",
	}
	killed := run(t, s, "cpu", "sleep 300")
	bundles[killed] = "killed"
	begun(t, s, killed)
	cl(t, s, "kill", killed)
	jobs := map[string]string{}
	for b, want := range bundles {
		if state := ended(t, s, b); state != want {
			t.Errorf("%s is %s, want %s: %s", b, state, want, field(t, s, b, "failure_message"))
		}
		jobs[b] = fmt.Sprint(explain(t, s, b).Job)
	}
	var r costs.Report
	testenv.Await(t, "accounting knows all jobs", func() bool {
		r = reported(t, s, s.BridgeConfig())
		return r.Total.Unaccounted == 0 && len(r.Jobs) == len(bundles)
	})
	for _, l := range r.Jobs {
		elapsed, cpus, gpus := billed(t, s, l.Job)
		if jobs[l.Bundle] != l.Job.String() || math.Abs(elapsed-l.ElapsedSeconds) > 1 || cpus != fmt.Sprint(l.CPUs) || gpus != "" && gpus != fmt.Sprint(l.GPUs) {
			t.Errorf("bundle %s, job %s: the report has %+v, sacct %v s, %s CPUs, %s GPUs", l.Bundle, jobs[l.Bundle], l, elapsed, cpus, gpus)
		}
	}
	// Without the database.
	config, err := os.ReadFile(s.BridgeConfig())
	alone := filepath.Join(s.Dir, "home", t.Name()+".toml")
	text := strings.Replace(string(config), "observe_every", "accounting = false\nobserve_every", 1)
	if err := errors.Join(err, os.WriteFile(alone, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	without := reported(t, s, alone)
	if without.Note == "" || without.Total.Unaccounted != len(bundles) {
		t.Errorf("without accounting: %+v, %q", without.Total, without.Note)
	}
	for _, l := range without.Jobs {
		elapsed, _, _ := billed(t, s, l.Job)
		t.Logf("job %d: sacct %v s, the bridge %.2f s", l.Job, elapsed, l.ElapsedSeconds)
		if math.Abs(elapsed-l.ElapsedSeconds) > 5 { // the machine may be slow
			t.Errorf("job %d: the bridge says %v s, sacct %v s", l.Job, l.ElapsedSeconds, elapsed)
		}
	}
	// The researcher sees it too.
	for b, state := range bundles {
		if got := field(t, s, b, "time_allocated"); got == "None" || state == "ready" && strings.HasPrefix(got, "0.0") {
			t.Errorf("%s %s: time_allocated %q", state, b, got)
		}
	}
}
