package usage

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func start() time.Time { return time.Unix(1_800_000_000, 0) }

// told is a report of a command that has run for some seconds and taken some processor time.
func told(ran, cpu float64, now *codalab.UsageNow) *codalab.RunReport {
	return &codalab.RunReport{State: codalab.StateRunning, ContainerTimeTotal: ran, ContainerTimeUser: cpu, Usage: now}
}

// of returns what the server shows of a run with these reports, each of them some seconds after the start.
func of(t *testing.T, reports map[int]*codalab.RunReport) codalab.Usage {
	t.Helper()
	var r Run
	for at := range 100_000 {
		if report, ok := reports[at]; ok {
			r.add(newSample(report, 8<<30), start().Add(time.Duration(at)*time.Second))
		}
	}
	if len(r.series.sections) > 0 { // what the database has shows the same
		var err error
		if r, err = decode(r.encode()); err != nil {
			t.Fatal(err)
		}
	}
	return r.show(codalab.UsageLimits{CPUs: 4, Memory: 8 << 30})
}

func TestUseIsReadFromReports(t *testing.T) {
	t.Parallel()
	gib := &codalab.UsageNow{MemoryBytes: 1 << 30}
	gpu := &codalab.UsageNow{MemoryBytes: 2 << 30, GPUs: &codalab.GPUsNow{Busy: .5, MemoryBytes: 3 << 30}}
	n := func(f float64) *float64 { return &f }
	point := func(at, seconds, cpus float64, memory *float64) codalab.UsagePoint {
		return codalab.UsagePoint{Time: float64(start().Unix()) + at, Seconds: seconds, CPUs: n(cpus), CPUsMax: n(cpus), Memory: memory, MemoryMax: memory}
	}
	for name, c := range map[string]struct {
		reports map[int]*codalab.RunReport
		want    []codalab.UsagePoint
	}{
		"a command that has not begun": {map[int]*codalab.RunReport{5: told(0, 0, nil)}, nil},
		"processor time": {
			map[int]*codalab.RunReport{5: told(5, 5, gib), 10: told(10, 15, gib), 12: told(10, 15, gib)},
			[]codalab.UsagePoint{point(0, 5, 1, n(1<<30)), point(5, 5, 2, n(1<<30))},
		},
		"GPUs": {
			map[int]*codalab.RunReport{5: told(5, 5, gpu)},
			[]codalab.UsagePoint{{
				Time: float64(start().Unix()), Seconds: 5, CPUs: n(1), CPUsMax: n(1), Memory: n(2 << 30), MemoryMax: n(2 << 30),
				GPUUsage: n(.5), GPUUsageMax: n(.5), GPUMemory: n(3 << 30), GPUMemoryMax: n(3 << 30),
			}},
		},
		"CodaLab's own worker": {
			map[int]*codalab.RunReport{5: {ContainerTimeTotal: 5, CPUUsage: 3.5, MemoryUsage: .25}},
			[]codalab.UsagePoint{point(0, 5, 3.5, n(2<<30))},
		},
		"CodaLab's own worker, which cannot measure": {
			map[int]*codalab.RunReport{5: {ContainerTimeTotal: 5}},
			[]codalab.UsagePoint{{Time: float64(start().Unix()), Seconds: 5}},
		},
		"a report that comes a little late": {
			map[int]*codalab.RunReport{5: told(5, 5, nil), 12: told(10, 10, nil)},
			[]codalab.UsagePoint{point(0, 5, 1, nil), point(5, 5, 1, nil), point(10, 2, 1, nil)},
		},
		"a server that was away": {
			map[int]*codalab.RunReport{5: told(5, 5, nil), 15: told(15, 25, nil)},
			[]codalab.UsagePoint{point(0, 5, 1, nil), point(5, 5, 2, nil), point(10, 5, 2, nil)},
		},
		"a first report of a long run": {
			map[int]*codalab.RunReport{60: told(1e6, 1e6, nil)},
			[]codalab.UsagePoint{
				point(0, 5, 1, nil), point(5, 5, 1, nil), point(10, 5, 1, nil), point(15, 5, 1, nil), point(20, 5, 1, nil), point(25, 5, 1, nil),
				point(30, 5, 1, nil), point(35, 5, 1, nil), point(40, 5, 1, nil), point(45, 5, 1, nil), point(50, 5, 1, nil), point(55, 5, 1, nil),
			},
		},
		"a second attempt, whose counters begin again": {
			map[int]*codalab.RunReport{5: told(5, 5, nil), 100: told(3, 6, nil), 105: told(8, 6, nil)},
			[]codalab.UsagePoint{point(0, 5, 1, nil), point(95, 3, 2, nil), point(100, 5, 0, nil)},
		},
		"a second attempt, whose counters go on": {
			map[int]*codalab.RunReport{5: told(5, 5, nil), 100: told(10, 5, nil)},
			[]codalab.UsagePoint{point(0, 5, 1, nil), point(95, 5, 0, nil)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, of(t, c.reports).Points, cmpopts.EquateEmpty(), cmpopts.EquateApprox(0, 1e-6)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Any user may run workers, and a worker may tell anything.
func TestImpossibleNumbersCountAsUnknown(t *testing.T) {
	t.Parallel()
	odd := []float64{math.NaN(), -1, 1e300, math.Inf(1), math.Inf(-1), -1e300, math.MaxInt64}
	var r Run
	at := start()
	for _, total := range append(odd, 5, 1, 1e9, 3, 8) {
		for _, n := range odd {
			at = at.Add(7 * time.Second)
			if n == -1 {
				at = at.Add(-time.Hour) // the server's own clock is set back
			}
			report := told(total, n, &codalab.UsageNow{MemoryBytes: int64(min(n, 1e18)), GPUs: &codalab.GPUsNow{Busy: n, MemoryBytes: -5}})
			report.ContainerTimeSystem, report.CPUUsage, report.MemoryUsage = -n, n, n
			r.add(newSample(report, 8<<30), at)
			if n := len(r.series.sections); n > mostSections {
				t.Fatalf("%d sections", n)
			}
			for _, p := range r.show(codalab.UsageLimits{}).Points {
				if p.CPUs != nil || p.Memory != nil && (*p.Memory < 0 || *p.Memory > mostBytes) || p.GPUUsage != nil || p.GPUMemory != nil || p.Seconds < 0 {
					t.Fatalf("%+v after %v, %v", p, total, n)
				}
			}
			text := r.encode()
			if _, err := decode(text); err != nil && len(r.series.sections) > 0 {
				t.Fatalf("%v: %s", err, text)
			}
		}
	}
}

func TestFullSeriesIsAFewKilobytes(t *testing.T) {
	t.Parallel()
	var r Run
	for i := 1; i <= mostSections; i++ {
		s := float64(i)
		r.add(newSample(told(5*s, 17*s, &codalab.UsageNow{MemoryBytes: 12345678901 + int64(i)*7654321, GPUs: &codalab.GPUsNow{Busy: s / 1000, MemoryBytes: 45678901234}}), 0),
			start().Add(time.Duration(5*i)*time.Second))
	}
	if text := r.encode(); len(r.series.sections) != mostSections || len(text) > 10_000 {
		t.Errorf("%d bytes, %d sections", len(text), len(r.series.sections))
	}
}

// FuzzDecode reads what an older or newer program may have written, or a database that is damaged.
func FuzzDecode(f *testing.F) {
	var r Run
	r.add(newSample(told(5, 5, &codalab.UsageNow{MemoryBytes: 5}), 0), start())
	f.Add(r.encode())
	f.Add("{}")
	f.Add(",1000,4000,,,\n1000,\n" + strings.Repeat("\n", lines-3))
	f.Add(",1000,4000,,,\n1000,\n9223372036854775807,1," + strings.Repeat("\n", lines-3))
	f.Fuzz(func(t *testing.T, text string) {
		r, err := decode(text)
		if err != nil {
			return
		}
		r.add(newSample(told(r.ran+10, r.cpu+10, nil), 0), start())
		if n := len(r.series.sections); n > mostSections {
			t.Errorf("%d sections", n)
		}
	})
}
