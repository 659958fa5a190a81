package bridge_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// full is a Slurm whose limit of submitted jobs is reached.
type full struct {
	sbatch.Scheduler

	asked *atomic.Int32
}

func (f full) Submit(context.Context, sbatch.Request) (sbatch.JobID, error) {
	f.asked.Add(1)
	return 0, &sbatch.Error{Op: "submit", Message: "Job violates accounting/QOS policy", Refused: true, Retry: true}
}

func TestStandingLimitIsNotAskedForFasterThanAControllerBears(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		var asked atomic.Int32
		s.alter = func(b *bridge.Bridge) { b.Scheduler = full{b.Scheduler, &asked} }
		s.start()
		for i := range 300 {
			s.offer(bundleID(i+1), "true")
		}
		time.Sleep(10 * time.Minute)
		before := asked.Load()
		time.Sleep(time.Minute)
		if n := asked.Load() - before; n == 0 || n > 40 {
			s.Errorf("%d submissions in a minute, want some, and those of eight bundles at most", n)
		}
	})
}

// reluctant is a stager that takes a while to stop the first time.
type reluctant struct {
	fakeStager

	asked *atomic.Int32
}

func (r reluctant) Stage(ctx context.Context, _ codalab.RunBundle, reference, _ string, _ func(string)) (spool.Inputs, error) {
	if r.asked.Add(1) == 1 {
		<-ctx.Done()
		time.Sleep(5 * time.Second)
		return spool.Inputs{}, ctx.Err()
	}
	return spool.Inputs{SIF: reference}, nil
}

// forgetful is a server that gives a bundle to another worker once.
type forgetful struct {
	*fakeServer

	asked *atomic.Int32
}

func (f forgetful) StartBundle(ctx context.Context, worker, bundle string, in codalab.StartBundle) (bool, error) {
	if f.asked.Add(1) == 2 {
		return false, nil
	}
	return f.fakeServer.StartBundle(ctx, worker, bundle, in)
}

func (f forgetful) Standing(ctx context.Context, bundle string) (codalab.Standing, error) {
	if f.asked.Load() == 2 {
		return codalab.Standing{State: codalab.StateRunning, Remote: "another worker"}, nil
	}
	return f.fakeServer.Standing(ctx, bundle)
}

// A bundle is lost and comes back. An effect of its first row takes a while to end; the row stays until
// then.
func TestI8EffectThatWasCutIsWantedAgain(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		var staged, claimed atomic.Int32
		s.alter = func(b *bridge.Bridge) {
			b.Stager, b.Service = reluctant{asked: &staged}, forgetful{s.server, &claimed}
		}
		s.startWith("true", plan.Staging)
		s.offer(bundleID(1), "true")
		s.within(10*time.Second, "dropped and forgotten", func() bool { return len(s.rows()) == 0 })
		s.offer(bundleID(1), "true")
		s.result(time.Minute, bundleID(1))
	})
}
