package bridge_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Bundles end while the bridge is away, for longer than the controller shows ended jobs. The
// accounting database is asked for those that have left no exit record, and for many of them at once.
func TestAccountingIsAskedForManyAtOnceAndOnlyForWhatLeftNoRecord(t *testing.T) {
	t.Parallel()
	const bundles = 40
	for _, recorded := range []bool{true, false} {
		t.Run(fmt.Sprintf("exit records %v", recorded), func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				s.start()
				command := map[bool]string{true: "sleep 600", false: "sleep 1000000"}[recorded]
				for i := range bundles {
					s.offer(bundleID(i+1), command)
				}
				for i := range bundles {
					s.phase(time.Minute, bundleID(i+1), plan.Running)
				}
				s.stop()
				if !recorded {
					s.slurm.change(func() {
						for _, j := range s.slurm.jobs {
							j.State, j.ended = sbatch.StateTimeout, time.Now()
						}
					})
				}
				time.Sleep(time.Hour)
				s.slurm.change(func() { s.slurm.queries = 0 })
				s.start()
				for i := range bundles {
					s.result(time.Minute, bundleID(i+1))
				}
				s.stop()
				if most := map[bool]int{true: 0, false: 5}[recorded]; s.slurm.queries > most {
					s.Errorf("sacct ran %d times for %d bundles, want %d times at most", s.slurm.queries, bundles, most)
				}
			})
		})
	}
}
