package costs_test

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/admin/costs"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// charged returns the charge of a job that ran from 60 s to 3661 s by the bridge's clock.
func charged(job sbatch.JobID, owner, queue string) ledger.Charge {
	return ledger.Charge{
		Bundle: "0x" + job.String(), Attempt: 1, Owner: owner, Queue: queue, Job: job, Node: "n1", Submitted: at(0), Started: at(61), Ended: at(3661),
		Staging: 10 * time.Second, CPUs: 2, GPUs: 1, MemoryBytes: 4 << 30, CPUTime: time.Hour, MemoryPeak: 1 << 30, GPUBusy: .25, Cause: spool.CauseSucceeded,
	}
}

func built(by costs.By, known []sbatch.Charge, charges ...ledger.Charge) costs.Report {
	b := costs.NewBuilder(by, known, costs.Names{Users: map[string]string{"0xa": "ann"}, Groups: map[string]string{"gpu": "vision"}})
	for _, c := range charges {
		b.Add(c)
	}
	return b.Report()
}

func TestSlurmsTimesCountWhereItKnowsTheJob(t *testing.T) {
	t.Parallel()
	known := []sbatch.Charge{{ID: 7, Start: at(60), End: at(3662), Elapsed: 3602 * time.Second, CPUs: 4, GPUs: 2, EnergyJoules: 3600}}
	r := built("", known, charged(7, "0xa", "gpu"), charged(8, "0xb", "cpu"))
	joules, quarter := int64(3600), .25
	want := []costs.Line{
		{
			Bundle: "0x7", Attempt: 1, User: "ann", Group: "vision", Queue: "gpu", Job: 7, Node: "n1", Cause: spool.CauseSucceeded,
			Submitted: at(0), Start: at(60), End: at(3662), StagingSeconds: 10, QueuedSeconds: 60, ElapsedSeconds: 3602, Source: costs.FromSlurm,
			CPUs: 4, GPUs: 2, CPUHours: 4 * 3602 / 3600., GPUHours: 2 * 3602 / 3600., CPUSeconds: 3600, CPUEfficiency: 3600. / (4 * 3602),
			MemoryBytes: 4 << 30, MemoryPeakBytes: 1 << 30, MemoryEfficiency: &quarter, GPUUse: &quarter, EnergyJoules: &joules,
		},
		{
			Bundle: "0x8", Attempt: 1, User: "0xb", Queue: "cpu", Job: 8, Node: "n1", Cause: spool.CauseSucceeded,
			Submitted: at(0), Start: at(61), End: at(3661), StagingSeconds: 10, QueuedSeconds: 61, ElapsedSeconds: 3600, Source: costs.FromBridge,
			CPUs: 2, GPUs: 1, CPUHours: 2, GPUHours: 1, CPUSeconds: 3600, CPUEfficiency: .5,
			MemoryBytes: 4 << 30, MemoryPeakBytes: 1 << 30, MemoryEfficiency: &quarter, GPUUse: &quarter,
		},
	}
	if diff := cmp.Diff(want, r.Jobs, cmp.Comparer(near)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.Total.Jobs != 2 || r.Total.Bundles != 2 || r.Total.Unaccounted != 1 || r.Total.ElapsedSeconds != 7202 {
		t.Errorf("total %+v", r.Total)
	}
}

func near(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

// Slurm uses the ids of old jobs again, and a requeued job has several allocations.
func TestAllocationsOfAJobAreItsOwn(t *testing.T) {
	t.Parallel()
	known := []sbatch.Charge{
		{ID: 7, Start: at(-90000), End: at(-80000), Elapsed: 10000 * time.Second, CPUs: 64},
		{ID: 7, Start: at(400), End: at(3661), Elapsed: 3000 * time.Second, CPUs: 2},
		{ID: 7, Start: at(60), End: at(160), Elapsed: 100 * time.Second, CPUs: 2},
		{ID: 7, Start: at(90000), End: at(99000), Elapsed: 9000 * time.Second, CPUs: 64},
		{ID: 9, Start: at(60), End: at(160), Elapsed: 100 * time.Second, CPUs: 2},
	}
	l := built("", known, charged(7, "0xa", "gpu")).Jobs[0]
	if l.ElapsedSeconds != 3100 || l.CPUs != 2 || !l.Start.Equal(at(60)) || !l.End.Equal(at(3661)) {
		t.Errorf("%+v", l)
	}
}

func TestSumsAreByUserQueueAndGroup(t *testing.T) {
	t.Parallel()
	second := charged(8, "0xa", "cpu")
	second.GPUs, second.GPUBusy, second.OwnerGroups = 0, -1, []string{"nlp", "speech"}
	again := charged(9, "0xb", "gpu")
	again.Bundle, again.Attempt, again.GPUBusy = "0x7", 2, .75
	for by, want := range map[costs.By]string{
		costs.ByUser:  "ann 2 2 4 1, 0xb 1 1 2 1",
		costs.ByQueue: "gpu 1 2 4 2, cpu 1 1 2 0",
		costs.ByGroup: "vision 1 2 4 2, nlp speech 1 1 2 0",
	} {
		r := built(by, nil, charged(7, "0xa", "gpu"), second, again)
		var got []string
		for _, s := range r.Sums {
			got = append(got, strings.Join([]string{s.Name, sbatch.JobID(s.Bundles).String(), sbatch.JobID(s.Jobs).String(), sbatch.JobID(s.CPUHours).String(), sbatch.JobID(s.GPUHours).String()}, " "))
		}
		if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", by, diff)
		}
		if u := r.Total.GPUUse; u == nil || *u != .5 || r.Total.Bundles != 2 || r.Total.CPUEfficiency != .5 || r.Jobs != nil {
			t.Errorf("by %s: total %+v", by, r.Total)
		}
	}
}

func TestReportReadsWell(t *testing.T) {
	t.Parallel()
	known := []sbatch.Charge{{ID: 7, Start: at(60), End: at(3660), Elapsed: time.Hour, CPUs: 2, GPUs: 1, EnergyJoules: 1_800_000}}
	unmeasured := charged(8, "0xb", "cpu")
	unmeasured.GPUs, unmeasured.GPUBusy = 0, -1
	clock := termtext.Clock(at(3661))
	want := strings.ReplaceAll(`BUNDLE  JOB  NODE  USER  QUEUE  ENDED CLOCK  QUEUED  ELAPSED  CPUS  CPU USE  GPUS  GPU-HOURS  GPU USE  ENERGY
0x7     7    n1    ann   gpu    @CLOCK  1m0s    1h0m     2     50 %     1     1.00       25 %     0.500 kWh
0x8     8    n1    0xb   cpu    @CLOCK  1m1s    1h0m     2     50 %     0     0.00       -        -

2 jobs of 2 bundles: 4.00 CPU-hours, of which 50 % were used, and 1.00 GPU-hours, of which 25 % were used; 0.500 kWh.
`, "@CLOCK", clock)
	got := costs.Text(built("", known, charged(7, "0xa", "gpu"), unmeasured))
	squeeze := func(s string) string {
		var lines []string
		for line := range strings.Lines(s) {
			lines = append(lines, strings.Join(strings.Fields(strings.NewReplacer("ENDED CLOCK", "ENDED", termtext.Clock(at(3660)), clock).Replace(line)), " "))
		}
		return strings.Join(lines, "\n")
	}
	if diff := cmp.Diff(squeeze(want), squeeze(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if one := costs.Text(built("", known, charged(7, "0xa", "gpu"))); !strings.Contains(one, "\n1 job of 1 bundle: ") {
		t.Errorf("one job: %s", one)
	}
	if got := costs.Text(costs.Report{}); got != "No job of a bundle ended in this time.\n" {
		t.Errorf("of nothing: %q", got)
	}
}

func TestCSVHasTheReportsNumbers(t *testing.T) {
	t.Parallel()
	for by, want := range map[costs.By]string{
		"":           "0x7|1|ann|vision|gpu|7|n1|succeeded|2026-11-20T12:00:00Z|2026-11-20T12:01:01Z|2026-11-20T13:01:01Z|10|61|3600|bridge|2|1|2|1|3600|0.5|4294967296|1073741824|0.25|0.25|0|",
		costs.ByUser: "ann|1|1|1|10|61|3600|2|3600|0.5|1|0.25|",
	} {
		var out bytes.Buffer
		if err := costs.WriteCSV(&out, built(by, nil, charged(7, "0xa", "gpu"))); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&out).ReadAll() // it checks that all rows have the header's length
		if err != nil || len(rows) != 2 || strings.Join(rows[1], "|") != want {
			t.Errorf("%v %q, want %q", err, rows, want)
		}
	}
}

// The runs of a pack share a job: each is billed with its own time and what it asked for.
func TestRunsOfAPackAreBilledByTheirOwnTimes(t *testing.T) {
	t.Parallel()
	known := []sbatch.Charge{{ID: 7, Start: at(60), End: at(9000), Elapsed: 8940 * time.Second, CPUs: 32, EnergyJoules: 3600}}
	one := charged(7, "0xa", "gpu")
	one.Pack = true
	if l := built("", known, one).Jobs[0]; l.ElapsedSeconds != 3600 || l.CPUs != 2 || l.EnergyJoules != nil || l.Job != 7 {
		t.Errorf("%+v", l)
	}
}
