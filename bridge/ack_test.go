package bridge_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// TestI6LostAcknowledgementIsAskedFor: the server has the verdict, and does not
// say so again.
func TestI6LostAcknowledgementIsAskedFor(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.server.deaf = true
		s.start()
		bundle := bundleID(1)
		s.offer(bundle, "true")
		s.result(5*time.Second, bundle)
		time.Sleep(10 * time.Second)
		if row := s.rows()[bundle]; row.Phase != plan.Finalizing {
			s.Errorf("%s (%s) before the server had its time to acknowledge", row.Phase, row.Reason)
		}
		s.phase(10*time.Second, bundle, plan.Done)
		time.Sleep(time.Hour)
		s.within(time.Second, "the row is forgotten", func() bool { return len(s.rows()) == 0 })
		s.stop()
		if s.server.verdicts[bundle] != 1 {
			s.Errorf("the verdict was reported %d times", s.server.verdicts[bundle])
		}
	})
}

// TestI6ResultOfABundleThatTheServerHasLost: it was restored from a copy that
// does not know the bundle. Until it says so the result is kept and reported.
func TestI6ResultOfABundleThatTheServerHasLost(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		bundle := s.startWith("sleep 3", plan.Running)
		s.server.change(func() { s.server.deaf = true })
		s.phase(5*time.Second, bundle, plan.Finalizing)
		s.server.change(func() { s.server.restored = map[string]bool{bundle: true} })
		s.server.setDown(true)
		time.Sleep(time.Hour)
		if row := s.rows()[bundle]; row.Phase != plan.Finalizing {
			s.Errorf("%s (%s) while the server does not answer", row.Phase, row.Reason)
		}
		s.server.setDown(false)
		s.phase(2*time.Minute, bundle, plan.Done)
		if row := s.rows()[bundle]; row.Verdict == nil || row.Verdict.Failure != "" {
			s.Errorf("verdict %+v", row.Verdict)
		}
	})
}

// stuckDisk is a disk whose files take long to remove.
type stuckDisk struct {
	bridge.Spool

	once sync.Once
	took chan struct{} // closed when a removal has begun
	done chan struct{} // ends it
}

func (d *stuckDisk) Release(bundle string) error {
	d.once.Do(func() { close(d.took) })
	<-d.done
	return d.Spool.Release(bundle)
}

func TestBundleThatIsOfferedWhileItsFilesAreRemovedRunsLater(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		d := &stuckDisk{took: make(chan struct{}), done: make(chan struct{})}
		s.alter = func(b *bridge.Bridge) { d.Spool, b.Spool = b.Spool, d }
		s.start()
		bundle := bundleID(1)
		s.offer(bundle, "true")
		s.result(5*time.Second, bundle)
		<-d.took
		s.server.mu.Lock()
		delete(s.server.acked, bundle)
		delete(s.server.finished, bundle)
		delete(s.server.uploads, bundle)
		s.server.mu.Unlock()
		s.offer(bundle, "exit 3")
		time.Sleep(10 * time.Minute)
		s.server.mu.Lock()
		if _, unclaimed := s.server.unclaimed[bundle]; !unclaimed || s.server.runs[bundle].State != codalab.StateFinalizing {
			s.Errorf("claimed while its files were being removed; reported %s", s.server.runs[bundle].State)
		}
		s.server.mu.Unlock()
		close(d.done)
		s.within(time.Second, "the row is forgotten", func() bool { return len(s.rows()) == 0 })
		s.offerAgain()
		run := s.result(10*time.Second, bundle)
		s.stop()
		if run.ExitCode == nil || *run.ExitCode != 3 || len(s.slurm.jobs) != 2 || s.server.uploads[bundle] == "" {
			s.Errorf("result %+v of %d jobs, want that of a second run", run, len(s.slurm.jobs))
		}
	})
}

// lingering is a collector that needs a while to end when it is told to.
type lingering struct {
	bridge.Collector

	began, ended bool
}

func (c *lingering) Collect(ctx context.Context, run codalab.RunBundle, runDir string, mode spool.ResultsMode, progress func(string)) (string, error) {
	if c.ended {
		return c.Collector.Collect(ctx, run, runDir, mode, progress)
	}
	c.began = true
	<-ctx.Done()
	time.Sleep(3 * time.Second)
	c.ended = true
	return "", ctx.Err()
}

func TestRunEndsAfterItsEffectsAndTheyAreWantedAgain(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		c := &lingering{Collector: s.server}
		s.alter = func(b *bridge.Bridge) { b.Collector = c }
		bundle := s.startWith("true", plan.Collecting)
		s.stop()
		if !c.began || !c.ended {
			s.Errorf("collection began: %t; ended before Run did: %t", c.began, c.ended)
		}
		s.start()
		row := s.rows()[bundle]
		if row.FailedTries != 0 || row.Phase != plan.Collecting && row.Phase != plan.Finalizing { // or it is at its end already
			s.Errorf("the collection that was cut short counts as a failure: %s, %s", row.Phase, row.Reason)
		}
		s.result(10*time.Second, bundle)
	})
}
