package testsite_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
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

// bill is what sacct says of all allocations of a job.
type bill struct {
	seconds    float64
	cpus, gpus string
	// lost is set if the only allocation was ended by a requeue, and the database has no start of it any more, as happens
	// with Slurm 22.05.
	lost bool
}

// billed asks sacct for all jobs of a bridge that have begun.
func billed(t *testing.T, s *testsite.Site) map[string]bill {
	t.Helper()
	var known struct{ Bridge string }
	out, _ := s.Run(t.Context(), program, "status", "--config", s.BridgeConfig(), "--json") // which may fail for a hold
	testenv.Must(t, json.Unmarshal([]byte(out), &known))
	bills := map[string]bill{}
	for line := range strings.Lines(must(t, s, "sacct", "-X", "-n", "-P", "--duplicates", "--starttime=now-1hours", "--format=JobIDRaw,Start,ElapsedRaw,AllocTRES,JobName,State")) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 6 || !strings.HasSuffix(f[4], "-"+known.Bridge) || f[3] == "" {
			continue // another bridge's, or it has not begun
		}
		seconds, err := strconv.ParseFloat(f[2], 64)
		testenv.Must(t, err)
		tres := map[string]string{}
		for item := range strings.SplitSeq(f[3], ",") {
			key, value, _ := strings.Cut(item, "=")
			tres[key] = value
		}
		former, seen := bills[f[0]]
		lost := f[5] == "REQUEUED" && f[1] == "None" && (!seen || former.lost)
		bills[f[0]] = bill{former.seconds + seconds, tres["cpu"], cmp.Or(tres["gres/gpu"], "0"), lost}
	}
	return bills
}

// lostOf counts the jobs without a start in the database.
func lostOf(bills map[string]bill) int {
	lost := 0
	for _, b := range bills {
		if b.lost {
			lost++
		}
	}
	return lost
}

// costly is a kind of bundle, by the way in which its job ends.
type costly struct {
	name, queue, command string
	args                 []string
	state                string
	// act ends the job, once it has begun; nil for a job that ends by itself.
	act func(t *testing.T, s *testsite.Site, bundle, job string)
}

// costlyKinds returns the kinds. Those that take more than a minute are for many jobs alone.
func costlyKinds(many bool) []costly {
	const long = "sleep 600"
	root := func(command ...string) func(t *testing.T, s *testsite.Site, bundle, job string) {
		return func(t *testing.T, _ *testsite.Site, _, job string) {
			t.Helper()
			admin(t, append(slices.Clone(command), job)...)
		}
	}
	kinds := []costly{
		{name: "success", queue: "cpu", command: "true", state: "ready"},
		{name: "slow success", queue: "short", command: "sleep 4", state: "ready"},
		{name: "failure", queue: "cpu", command: "sleep 1; exit 3", args: []string{"--request-cpus", "2"}, state: "failed"},
		{name: "GPUs", queue: "gpu", command: "sleep 2", args: []string{"--request-gpus", "2"}, state: "ready"},
		{name: "work", queue: "short", command: "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done", state: "ready"},
		{name: "time limit", queue: "cpu", command: long, args: []string{"--request-time", "2s"}, state: "failed"},
		{name: "memory limit", queue: "cpu", command: "head -c 500m /dev/zero | tail", args: []string{"--request-memory", "50m"}, state: "failed"},
		{name: "cl kill", queue: "cpu", command: long, state: "killed", act: func(t *testing.T, s *testsite.Site, bundle, _ string) {
			t.Helper()
			cl(t, s, "kill", bundle)
		}},
		{name: "scancel by the user", queue: "cpu", command: long, state: "failed", act: func(t *testing.T, s *testsite.Site, _, job string) {
			t.Helper()
			must(t, s, "scancel", job)
		}},
		{name: "scancel by root", queue: "gpu", command: long, args: []string{"--request-gpus", "1"}, state: "failed", act: root("scancel")},
		{name: "KILL without an exit record", queue: "cpu", command: long, state: "failed", act: root("scancel", "--signal=KILL", "--batch")},
		{name: "requeue", queue: "cpu", command: long, state: "failed", act: func(t *testing.T, s *testsite.Site, _, job string) {
			t.Helper()
			requeue(t, s, job)
		}},
	}
	if many {
		kinds = append(kinds,
			costly{name: "suspension", queue: "cpu", command: "sleep 2; until test -e go; do sleep 0.1; done", state: "killed", act: func(t *testing.T, s *testsite.Site, bundle, job string) {
				t.Helper()
				admin(t, "scontrol", "suspend", job)
				testenv.AwaitStopped(t, testenv.Slurm(t), job)
				admin(t, "scontrol", "resume", job)
				cl(t, s, "kill", bundle)
			}},
			costly{name: "Slurm's time limit", queue: "cpu", command: long, state: "failed", act: func(t *testing.T, _ *testsite.Site, _, job string) {
				t.Helper()
				admin(t, "scontrol", "update", "jobid="+job, "timelimit=1")
			}})
	}
	return kinds
}

// manyJobs is the environment variable with the number of jobs of TestReportAgreesWithSacctWithinASecondAJob.
const manyJobs = "CLTEST_REPORT_JOBS"

// The bill of a bundle is sacct's for every kind of end: the report has each job of the bridge that has begun, and no
// other. "make test-report JOBS=500" runs many.
func TestReportAgreesWithSacctWithinASecondAJob(t *testing.T) {
	t.Parallel()
	need(t)
	n, err := strconv.Atoi(cmp.Or(os.Getenv(manyJobs), "0"))
	testenv.Must(t, err)
	kinds := costlyKinds(n > 0)
	n = cmp.Or(n, len(kinds))
	s := own(t, testsite.Options{Config: often("")})
	kindOf := map[string]costly{}
	const atOnce = 60
	for len(kindOf) < n {
		maps.Copy(kindOf, spend(t, s, kinds, min(atOnce, n-len(kindOf))))
	}
	var r costs.Report
	var bills map[string]bill
	testenv.Await(t, "accounting knows all jobs", func() bool {
		r, bills = reported(t, s, s.BridgeConfig()), billed(t, s)
		return r.Total.Unaccounted == lostOf(bills) && r.Total.Bundles == n && len(bills) >= n
	}, &r.Total)
	byKind, worst, sum, sums := map[string]int{}, 0., 0., 0.
	for _, l := range r.Jobs {
		job := l.Job.String()
		b, known := bills[job]
		off := math.Abs(b.seconds - l.ElapsedSeconds)
		if b.lost && l.Source == costs.FromBridge && kindOf[l.Bundle].name == "requeue" {
			off, l.ElapsedSeconds = 0, 0 // the report has the bridge's own times, and says so
		}
		if !known || off > 1 || b.cpus != fmt.Sprint(l.CPUs) || b.gpus != fmt.Sprint(l.GPUs) {
			t.Errorf("%s: bundle %s, job %s: the report has %+v, sacct %+v", kindOf[l.Bundle].name, l.Bundle, job, l, b)
		}
		byKind[kindOf[l.Bundle].name]++
		worst, sum, sums = max(worst, off), sum+l.ElapsedSeconds, sums+b.seconds
		delete(bills, job)
	}
	if len(bills) > 0 {
		t.Errorf("the report lacks the jobs %v", bills)
	}
	t.Logf("%d jobs of %d bundles %v: the report has %.0f s, sacct %.0f s; the largest difference of a job is %.0f s; %d without a start at sacct", r.Total.Jobs, r.Total.Bundles, byKind, sum, sums, worst, r.Total.Unaccounted)
	checkOwnClock(t, s, r, kindOf)
	// The researcher sees it too.
	for b, k := range kindOf {
		if got := field(t, s, b, "time_allocated"); got == "None" || k.name == "slow success" && strings.HasPrefix(got, "0.0") {
			t.Errorf("%s %s: time_allocated %q", k.name, b, got)
		}
	}
}

// spend runs n bundles of all kinds to their ends, and returns their kinds.
func spend(t *testing.T, s *testsite.Site, kinds []costly, n int) map[string]costly {
	t.Helper()
	spent := map[string]costly{}
	var order []string
	for i := range n {
		k := kinds[i%len(kinds)]
		bundle := run(t, s, k.queue, k.command, k.args...)
		spent[bundle], order = k, append(order, bundle)
	}
	for _, bundle := range order {
		if act := spent[bundle].act; act != nil {
			if job, live := begunOrEnded(t, s, bundle); live { // else its end is another one, which is an error
				act(t, s, bundle, job)
			}
		}
	}
	for _, bundle := range order {
		if state := ended(t, s, bundle); state != spent[bundle].state {
			t.Errorf("%s: %s is %s, want %s: %s", spent[bundle].name, bundle, state, spent[bundle].state, field(t, s, bundle, "failure_message"))
		}
	}
	return spent
}

// begunOrEnded waits until a bundle runs or has ended, and returns its job. live is set while it runs.
func begunOrEnded(t *testing.T, s *testsite.Site, bundle string) (job string, live bool) {
	t.Helper()
	var e explanation
	testenv.Await(t, "bundle "+bundle+" has begun", func() bool {
		var known bool
		e, known = explained(t, s, bundle)
		return known && !slices.Contains([]string{"claiming", "staging", "submitting", "queued"}, e.Phase)
	})
	return fmt.Sprint(e.Job), e.Phase == "running"
}

// checkOwnClock compares the bridge's own times of jobs, which count at a site without the database, with a report that
// has Slurm's.
func checkOwnClock(t *testing.T, s *testsite.Site, slurms costs.Report, kindOf map[string]costly) {
	t.Helper()
	config, err := os.ReadFile(s.BridgeConfig())
	alone := filepath.Join(s.Dir, "home", t.Name()+".toml")
	text := strings.Replace(string(config), "observe_every", "accounting = false\nobserve_every", 1)
	testenv.Must(t, errors.Join(err, os.WriteFile(alone, []byte(text), 0o644)))
	without := reported(t, s, alone)
	if without.Note == "" || without.Total.Unaccounted != slurms.Total.Jobs {
		t.Errorf("without accounting: %+v, %q", without.Total, without.Note)
	}
	elapsed := map[sbatch.JobID]float64{}
	for _, l := range slurms.Jobs {
		elapsed[l.Job] = l.ElapsedSeconds
	}
	var off []float64
	for _, l := range without.Jobs {
		k, differs := kindOf[l.Bundle].name, math.Abs(elapsed[l.Job]-l.ElapsedSeconds)
		if k == "suspension" || k == "requeue" { // the bridge knows of neither
			continue
		}
		off = append(off, differs)
	}
	slices.Sort(off)
	if off[len(off)/2] > 5 { // single jobs differ by more on a busy machine: scancel ends a job for Slurm before its processes end
		t.Errorf("by the bridge's own clock the median job differs from sacct by %v s", off[len(off)/2])
	}
	t.Logf("by the bridge's own clock %d jobs differ from sacct by %.2f s in the median, %.2f s in the worst case", len(off), off[len(off)/2], off[len(off)-1])
}
