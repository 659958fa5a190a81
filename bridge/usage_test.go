package bridge_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// TestRestartTakesBackNoUsage: a server charges the owner for each rise of a run's time (codalab/model/bundle_model.py:
// transition_bundle_running), so a report of less time makes it charge the same seconds twice.
func TestRestartTakesBackNoUsage(t *testing.T) {
	t.Parallel()
	for _, down := range []time.Duration{time.Second, time.Hour} {
		t.Run("down for "+down.String(), func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				var totals []float64
				s.server.reported = func(r codalab.RunReport) { totals = append(totals, r.ContainerTimeTotal) }
				bundle := s.startWith("sleep 100000", plan.Running)
				row := s.rows()[bundle]
				status := spool.Status{Token: row.Begun.Token, Stage: spool.StageRunning, CommandStarted: time.Now().Add(-time.Minute), At: time.Now()}
				if err := s.shared.Attempt(bundle, row.OnDisk).WriteStatus(status); err != nil {
					s.Fatal(err)
				}
				reports := func(limit time.Duration, least int) {
					s.within(limit, "a report of a minute", func() (is bool) {
						s.server.change(func() { is = len(totals) >= least && totals[len(totals)-1] == 60 })
						return is
					})
				}
				reports(time.Minute, 1)
				s.stop()
				time.Sleep(down)
				before := len(totals)
				s.start()
				reports(20*time.Second, before+1)
				s.stop()
				for n, total := range totals[before:] {
					if total < 60 {
						s.Errorf("report %d after the restart says %v s", n, total)
					}
				}
			})
		})
	}
}
