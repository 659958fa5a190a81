package bridge_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
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

// TestRunIsRunningWhenItsCommandHasBegun lets a worker set its container up for a minute. The server has the run
// preparing until the command begins, and running soon after.
func TestRunIsRunningWhenItsCommandHasBegun(t *testing.T) {
	t.Parallel()
	const setup, report = time.Minute, time.Second
	for name, c := range map[string]struct {
		standalone     bool
		alter          func(*bridge.Bridge)
		restart        bool
		within         time.Duration // how late the command's begin may be reported
		before, during string
	}{
		"a job of Slurm": {
			within: report, before: "Setting the container up on n1 (Slurm job 1).", during: "Running job in container (Slurm job 1).",
			alter: func(b *bridge.Bridge) { b.ReadEvery = 100 * time.Hour }, // nothing is found by chance
		},
		"a stand-alone worker": {
			within: report, before: "Setting the container up.", during: "Running job in container.", standalone: true,
			alter: func(b *bridge.Bridge) { b.ReadEvery = 100 * time.Hour },
		},
		"the ring is lost": {
			within: 5*time.Second + report, before: "Setting the container up on n1 (Slurm job 1).", during: "Running job in container (Slurm job 1).",
			alter: func(b *bridge.Bridge) { b.Spool = deaf{b.Spool} },
		},
		"the bridge is down at that time": {
			within: 16 * time.Second, before: "Setting the container up on n1 (Slurm job 1).", during: "Running job in container (Slurm job 1).",
			restart: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				s.slurm.setup, s.alter = setup, c.alter
				if c.standalone {
					s.standalone(nil)
				}
				bundle, first := bundleID(1), time.Time{}
				s.server.reported = func(r codalab.RunReport) {
					switch {
					case r.State == codalab.StateRunning && first.IsZero():
						first = time.Now()
					case r.State == codalab.StatePreparing && !first.IsZero():
						s.Errorf("preparing again after %s: %s", time.Since(first), r.RunStatus)
					}
				}
				s.start()
				s.offer(bundle, "sleep 100")
				s.within(10*time.Second, "a report of the container", func() bool { return s.run(bundle).RunStatus == c.before })
				begins := s.rows()[bundle].Begun.At.Add(setup)
				if c.restart {
					s.stop()
					time.Sleep(time.Until(begins.Add(10 * time.Second)))
					s.start()
				}
				s.within(2*time.Minute, "a report of the command", func() bool { return s.run(bundle).RunStatus == c.during })
				run := s.run(bundle)
				if late := first.Sub(begins); late < 0 || late > c.within {
					s.Errorf("reported as running %s after the command began, want 0 to %s", late, c.within)
				}
				if began := s.rows()[bundle].RunningAt; began.Before(begins) || run.Profile[codalab.StagePreparing].Elapsed == nil || *run.Profile[codalab.StagePreparing].Elapsed < setup.Seconds() {
					s.Errorf("running since %s, and the command began at %s; %+v", began, begins, run.Profile)
				}
				s.stop()
				s.start()
				time.Sleep(30 * time.Second) // the restarted bridge reports it again
			})
		})
	}
}
