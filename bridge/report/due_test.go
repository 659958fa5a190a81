package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// runningRow returns a row of a running bundle. Its report is as large as a real one's.
func runningRow(n int) plan.Row {
	row := cpuRow(fmt.Sprintf("0x%032x", n), plan.Running)
	begun := time.Unix(1_800_000_000, 123_456_789)
	row.OfferedAt, row.Job.ID = begun, 4_711_000
	row.Times = plan.Times{Preparing: begun, CleaningUp: begun.Add(time.Minute), Uploading: begun.Add(time.Hour)}
	row.Staged = &spool.Inputs{PinnedReference: "sha256:" + strings.Repeat("0", 64)}
	return row
}

// The smallest report and one with everything that it can have.
func TestSizeOfARunIsKnownWithoutEncodingIt(t *testing.T) {
	t.Parallel()
	full := plan.Row{Bundle: "0x" + strings.Repeat("a", 32), Phase: plan.Finalizing}
	begin := time.Unix(1_800_000_000, 123456789)
	full.OfferedAt, full.RunningAt = begin, begin.Add(time.Minute)
	full.Times = plan.Times{Preparing: begin, CleaningUp: begin.Add(time.Hour), Uploading: begin.Add(61 * time.Minute), Finalizing: begin.Add(2 * time.Hour)}
	full.Job.ID = 1<<63 - 1
	full.Staged = &spool.Inputs{PinnedReference: "sha256:" + strings.Repeat("0", 64)}
	full.Resources = codalab.Resources{CPUs: 3, Memory: 7 << 30}
	code := 143
	full.Exit = &spool.Exit{CommandStarted: begin, CommandEnded: begin.Add(time.Hour + time.Millisecond), Usage: spool.Usage{
		UserSeconds: 3001.123456, SystemSeconds: 1.234567, MemoryPeak: 5 << 30, DiskBytes: 123 << 30,
	}}
	full.Begun, full.SlurmVersion = &spool.Started{}, "24.11.5"
	full.Exit.Ran = spool.Ran{
		Runtime: "apptainer", RuntimeVersion: "1.3.4", Worker: "v1.2.3 0123456789ab", Cluster: "big", GPUs: slices.Repeat([]string{"NVIDIA H200"}, 8), GPUDriver: "570.86.15",
	}
	for range 40 {
		full.Staged.Dependencies = append(full.Staged.Dependencies, spool.Dependency{ChildPath: strings.Repeat("d", 50), Digest: codalab.FileDigest + strings.Repeat("a", 64)})
	}
	full.Verdict = &plan.Verdict{ExitCode: &code, Failure: strings.Repeat("It went wrong. ", 30)}
	for _, r := range []plan.Row{{Bundle: full.Bundle, Phase: plan.Staging, OfferedAt: begin}, full} {
		run := r.Report("bridge-cpu")
		data, err := json.Marshal(run)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytesOf(&run); got < len(data)+len(",") || got > 2*len(data) {
			t.Errorf("size %d, and %d bytes: %s", got, len(data), data)
		}
	}
}

// bundlesOf makes a check-in, answers it, and returns its bundles.
func (r *teller) bundlesOf() []string {
	r.Helper()
	in := r.CheckIn("cpu", "b-cpu", r.now)
	var bundles []string
	size := 0
	for _, run := range in.Reports {
		bundles = append(bundles, run.UUID)
		data, err := json.Marshal(run)
		if err != nil {
			r.Error(err)
		}
		size += len(data) + len(",")
	}
	if size > MostBytes {
		r.Errorf("a check-in has %d bytes of runs", size)
	}
	r.answered(in.Number)
	return bundles
}

func TestVerdictsAreReportedFirstAndThenNewStates(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	row := func(n int, phase plan.Phase, since time.Duration) plan.Row {
		row := cpuRow(fmt.Sprintf("0x%d", n), phase)
		row.PhaseSince, row.ReportCount = r.now.Add(since), 1
		return row
	}
	for n := range 6 {
		r.show(row(n, plan.Queued, 0))
	}
	r.bundlesOf()
	r.now = r.now.Add(time.Second)
	words := row(0, plan.Queued, 0)
	words.Progress = "half"
	r.show(words)
	r.show(row(1, plan.Running, 2))
	r.show(row(2, plan.Running, 1))
	r.show(row(3, plan.Finalizing, 4))
	r.show(row(4, plan.Finalizing, 3))
	if got, want := r.bundlesOf(), []string{"0x4", "0x3", "0x2", "0x1", "0x0"}; !slices.Equal(got, want) {
		t.Errorf("reported in the order %v, want %v", got, want)
	}
	r.now = r.now.Add(RefreshEvery)
	if got, want := r.bundlesOf(), []string{"0x5", "0x0", "0x1", "0x2"}; !slices.Equal(got, want) {
		t.Errorf("refreshed in the order %v, want %v", got, want)
	}
}

// Thousands of bundles end at the same time, and others run on.
func TestManyVerdictsAndManyLiveRunsDoNotKeepEachOtherWaiting(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	const each = 3000
	for n := range 2 * each {
		r.show(runningRow(n))
	}
	for left := 2 * each; left > 0; {
		left -= len(r.bundlesOf())
	}
	r.now = r.now.Add(RefreshEvery)
	for n := range each {
		row := runningRow(n)
		row.Phase, row.ReportCount = plan.Finalizing, 1
		r.show(row)
	}
	count := map[string]int{}
	for checkIns := 0; ; checkIns++ {
		bundles := r.bundlesOf()
		if len(bundles) == 0 {
			break
		}
		verdicts := 0
		for _, bundle := range bundles {
			count[bundle]++
			if bundle < runningRow(each).Bundle {
				verdicts++
			}
		}
		if live := len(bundles) - verdicts; checkIns < 4 && (verdicts < 200 || live < 200) {
			t.Errorf("check-in %d has %d verdicts and %d live runs", checkIns, verdicts, live)
		}
	}
	if len(count) != 2*each {
		t.Errorf("%d of %d runs were reported", len(count), 2*each)
	}
	for bundle, n := range count {
		if n != 1 {
			t.Errorf("%s was reported %d times", bundle, n)
		}
	}
}

// A server that refuses a check-in has not applied it: the bridge does not ask it for the bundles.
func TestRefusedCheckInCountsAsNotSent(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	one, two := cpuRow("0x1", plan.Running), cpuRow("0x2", plan.Running)
	r.show(one)
	r.answered(r.checkIn("0x1 running"))
	one.Phase, one.ReportCount = plan.Finalizing, 1
	r.show(one)
	r.show(two)
	if !r.Refused("cpu", r.checkIn("0x1 finalizing", "0x2 running")) {
		t.Error("the next check-in is not smaller")
	}
	first, second := r.checkIn("0x1 finalizing"), r.checkIn("0x2 running")
	if r.Refused("cpu", second) {
		t.Error("there is no smaller check-in than one of a single run")
	}
	if verdicts := r.Doubt("cpu", second, r.now); len(verdicts) != 0 {
		t.Errorf("verdicts in doubt: %v", verdicts)
	}
	r.answered(first)
	r.checkIn("0x2 running")
}

// TestNewStatesLeaveHalfOfACheckInToOldReports: runs with new states take half of a check-in at most. The
// other half is for runs that the bridge reported long ago: the server takes a run for lost after a minute
// without a report.
func TestNewStatesLeaveHalfOfACheckInToOldReports(t *testing.T) {
	t.Parallel()
	var d due
	for i := range 100 {
		for list, runs := range map[string]*[]*run{"state": &d.states, "old": &d.old} {
			*runs = append(*runs, &run{row: &plan.Row{Bundle: fmt.Sprint(list, i), Phase: plan.Running, Run: &codalab.RunBundle{}}})
		}
	}
	rows, _, _ := d.take("login1", 20*bytesOf(&codalab.RunReport{UUID: "state99"}), false)
	old := 0
	for _, r := range rows {
		if strings.HasPrefix(r.Bundle, "old") {
			old++
		}
	}
	if len(rows) < 15 || 2*old < len(rows)-1 {
		t.Errorf("%d of %d reports are of old ones", old, len(rows))
	}
}

// TestRoomForOneReportGoesToOldOnesByTurns: a server may be so slow, or a proxy so narrow, that a check-in reports one run. New states and
// verdicts then take each second one at most.
func TestRoomForOneReportGoesToOldOnesByTurns(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	for _, bundle := range []string{"0x1", "0x2", "0x3"} {
		r.show(cpuRow(bundle, plan.Queued))
	}
	r.bundlesOf()
	r.of("cpu").size.most = 1 // a check-in reports one run at least
	r.now = r.now.Add(RefreshEvery)
	for n := range 6 {
		r.show(cpuRow(fmt.Sprintf("0xa%d", n), plan.Running))
	}
	var got []string
	for range 9 {
		got = append(got, r.bundlesOf()...)
	}
	if want := []string{"0xa0", "0x1", "0xa1", "0x2", "0xa2", "0x3", "0xa3", "0xa4", "0xa5"}; !slices.Equal(got, want) {
		t.Errorf("reported in the order %v, want %v", got, want)
	}
}

// TestReportsThatMayBeLostTakeTurnsWithOthers: the answers to check-ins are lost again and again, though the server may apply them. A
// check-in has room for one run, and each run is reported in its turn.
func TestReportsThatMayBeLostTakeTurnsWithOthers(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	r.of("cpu").size.most = 1
	for _, bundle := range []string{"0x1", "0x2", "0x3"} {
		r.show(cpuRow(bundle, plan.Running))
		r.bundlesOf()
		r.now = r.now.Add(time.Second)
	}
	r.now = r.now.Add(RefreshEvery)
	var got []string
	for range 9 {
		in := r.CheckIn("cpu", "b-cpu", r.now)
		got = append(got, in.Reports[0].UUID)
		r.Doubt("cpu", in.Number, r.now)
		r.now = r.now.Add(time.Second)
	}
	// The first report of a run that may be lost is repeated before others' reports.
	if want := []string{"0x1", "0x1", "0x2", "0x2", "0x3", "0x3", "0x1", "0x2", "0x3"}; !slices.Equal(got, want) {
		t.Errorf("reported in the order %v, want %v", got, want)
	}
}
