package bridge_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/spool"
)

// deaf is a shared disk on which every ring of the doorbell is lost.
type deaf struct{ bridge.Spool }

func (deaf) TakeRings() ([]spool.Ring, error) { return nil, nil }

// While Slurm shows all jobs pending the doorbell is not read. A job that starts then is noticed by the
// next snapshot, and its end is heard at once, as is all of a job that starts soon.
func TestStartAndEndOfAJobAreNoticedSoon(t *testing.T) {
	t.Parallel()
	const ring, snapshot = 400 * time.Millisecond, 6500 * time.Millisecond
	for name, c := range map[string]struct {
		waits      time.Duration // in Slurm's queue
		command    string
		deaf       bool
		start, end time.Duration // how late they may be noticed
	}{
		"it starts soon, and is short":          {5 * time.Second, "sleep 1", false, ring, ring},
		"it starts after half a minute":         {28 * time.Second, "sleep 1", false, ring, ring},
		"it starts after minutes, and is short": {5 * time.Minute, "sleep 1", false, snapshot, snapshot},
		"it starts after minutes, and is long":  {5 * time.Minute, "sleep 60", false, snapshot, ring},
		"it starts soon, and no ring is heard":  {5 * time.Second, "sleep 60", true, snapshot, snapshot},
		"it is short, and no ring is heard":     {5 * time.Second, "sleep 1", true, snapshot, snapshot},
		"it starts late, and no ring is heard":  {5 * time.Minute, "sleep 60", true, snapshot, snapshot},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				start, end := time.Duration(-1), time.Duration(-1)
				s.slurm.held = true
				s.alter = func(b *bridge.Bridge) {
					b.ReadEvery = 100 * time.Hour // nothing is found by chance
					if c.deaf {
						b.Spool = deaf{b.Spool}
					}
					b.Trace = func(d plan.Decision) {
						if d.Row.Begun == nil && d.Next.Begun != nil {
							start = d.Now.Sub(d.Next.Begun.At)
						}
						if d.Row.Exit == nil && d.Next.Exit != nil {
							end = d.Now.Sub(d.Next.Exit.CommandEnded)
						}
					}
				}
				s.startWith(c.command, plan.Queued)
				time.Sleep(c.waits)
				s.slurm.wg.Go(func() { s.slurm.run(s.slurm.ctx, s.slurm.jobs[0]) })
				s.result(2*time.Minute, bundleID(1))
				s.stop()
				if start < 0 || start > c.start || end < 0 || end > c.end {
					t.Errorf("the start was noticed after %s, the end after %s; want %s and %s at most", start, end, c.start, c.end)
				}
			})
		})
	}
}
