package checkin

import (
	"fmt"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/plan"
)

// used is a report of a run that has run for some seconds and kept a processor busy.
func used(uuid string, state codalab.State, seconds float64) codalab.RunReport {
	return codalab.RunReport{
		UUID: uuid, State: state, ContainerTimeTotal: seconds, ContainerTimeUser: seconds,
		Usage: &codalab.UsageNow{MemoryBytes: 1 << 20, GPUs: &codalab.GPUsNow{Busy: .5, MemoryBytes: 1 << 30}},
	}
}

func TestCheckInsTellTheUseOfARun(t *testing.T) {
	t.Parallel()
	s, run, worker := service(t, codalab.StateRunning)
	now := time.Now()
	s.config.Now = func() time.Time { return now }
	report := func(from plan.Worker, r codalab.RunReport) {
		t.Helper()
		c, _, err := s.config.Hub.BeginCheckIn(from, hub.Arrival{CheckIn: codalab.CheckIn{}}, now)
		must(t, err)
		_, err = s.applyReports(t.Context(), c, []codalab.RunReport{r}, false)
		must(t, err)
		c.End()
	}
	seconds := func(want float64) {
		t.Helper()
		u, err := s.config.Usage.Of(t.Context(), run.UUID, codalab.UsageLimits{})
		must(t, err)
		if u.Whole.Seconds < want-.01 || u.Whole.Seconds > want+.01 || want > 0 && *u.Whole.CPUs != 1 {
			t.Errorf("%+v, want %v s", u.Whole, want)
		}
	}
	report(plan.Worker{User: worker.User, ID: "other"}, used(run.UUID, codalab.StateRunning, 5))
	report(plan.Worker{User: "0xmallory", ID: worker.ID}, used(run.UUID, codalab.StateFinalizing, 5))
	seconds(0)
	for i := range 3 { // also reports that differ in nothing else, and are not stored
		now = now.Add(5 * time.Second)
		report(worker, used(run.UUID, codalab.StateRunning, 5*float64(i+1)))
	}
	seconds(15)
	if stored, err := s.config.Store.Usage(t.Context(), []string{run.UUID}); err != nil || len(stored) > 0 {
		t.Errorf("written after seconds: %v, %v", stored, err)
	}
	now = now.Add(2 * time.Second)
	report(worker, used(run.UUID, codalab.StateFinalizing, 17))
	if stored, err := s.config.Store.Usage(t.Context(), []string{run.UUID}); err != nil || stored[run.UUID] == "" {
		t.Errorf("not written at the end: %v, %v", stored, err)
	}
	seconds(17)
	report(worker, used(run.UUID, codalab.StateFinalizing, 1e300)) // again, because it got no answer
	seconds(17)
}

// BenchmarkReports applies the reports of a worker whose runs go on, as it does each five seconds of the server's clock.
func BenchmarkReports(b *testing.B) {
	for _, runs := range []int{1, 50} {
		b.Run(fmt.Sprint(runs), func(b *testing.B) { benchmarkReports(b, runs) })
	}
}

func benchmarkReports(b *testing.B, runs int) {
	b.Helper()
	s, first, worker := service(b, codalab.StateRunning)
	now := time.Now()
	s.config.Now = func() time.Time { return now }
	uuids := []string{first.UUID}
	for i := 1; i < runs; i++ {
		run := first
		run.UUID = fmt.Sprintf("0x%032x", i)
		must(b, s.config.Store.CreateBundle(b.Context(), run, ""))
		run, err := s.config.Store.Change(b.Context(), run.UUID, assign(worker))
		must(b, err)
		s.track(run)
		uuids = append(uuids, run.UUID)
	}
	seconds := 0.
	for b.Loop() {
		now, seconds = now.Add(5*time.Second), seconds+5
		c, _, err := s.config.Hub.BeginCheckIn(worker, hub.Arrival{CheckIn: codalab.CheckIn{}}, now)
		must(b, err)
		reports := make([]codalab.RunReport, 0, runs)
		for _, uuid := range uuids {
			reports = append(reports, used(uuid, codalab.StateRunning, seconds))
		}
		_, err = s.applyReports(b.Context(), c, reports, false)
		must(b, err)
		c.End()
	}
}
