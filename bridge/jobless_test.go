package bridge_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// silent is the reference of an image that never comes.
const silent = "silent"

// stuckStager waits for the image silent until the end, and for others as fakeStager does.
type stuckStager struct{ fakeStager }

func (s stuckStager) Stage(ctx context.Context, b codalab.RunBundle, reference, dir string, progress func(string)) (spool.Inputs, error) {
	if reference == silent {
		<-ctx.Done()
		return spool.Inputs{}, ctx.Err()
	}
	return s.fakeStager.Stage(ctx, b, reference, dir, progress)
}

// slowCollector collects results once the channel is closed.
type slowCollector struct {
	bridge.Collector

	begin chan struct{}
}

func (c slowCollector) Collect(ctx context.Context, run codalab.RunBundle, dir string, mode spool.ResultsMode, progress func(string)) (string, error) {
	select {
	case <-c.begin:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	return c.Collector.Collect(ctx, run, dir, mode, progress)
}

// twoCPUs starts the site as a stand-alone worker whose host has two CPUs. It collects results once collect is closed.
func (s *site) twoCPUs() (collect chan struct{}) {
	collect = make(chan struct{})
	host := sbatch.NodeResources{CPUs: 2, Memory: 8 << 30}
	s.slurm.partitions = []sbatch.Partition{{Name: "local", Default: true, Most: host, All: host, Sizes: sbatch.NodeSizes{host}}}
	s.standalone(nil)
	alter := s.alter
	s.alter = func(b *bridge.Bridge) {
		alter(b)
		b.Stager, b.Collector = stuckStager{}, slowCollector{b.Collector, collect}
	}
	s.start()
	return collect
}

func (s *site) offerImage(n int, reference string) {
	s.offerWith(bundleID(n), "sleep 100", func(m *codalab.Message) { m.Resources.ImageReference = reference })
}

// tells waits until the worker tells these CPUs.
func (s *site) tells(limit time.Duration, cpus int64) {
	s.Helper()
	s.within(limit, fmt.Sprintf("the worker tells %d CPUs", cpus), func() bool { return s.last().CPUs == cpus })
}

// The server subtracts the requests of the runs that a worker has: with 4 CPUs, of which two runs have 2, it
// gives the worker the third run.
func TestRunsThatArePreparedForLongLeaveTheHostToOthers(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.twoCPUs()
		s.tells(time.Minute, 2)
		s.offerImage(1, silent)
		s.offerImage(2, silent)
		s.phase(5*time.Second, bundleID(1), plan.Staging)
		s.phase(5*time.Second, bundleID(2), plan.Staging)
		if got := s.last().CPUs; got != 2 {
			t.Errorf("the worker tells %d CPUs before it knows that the image does not come soon", got)
		}
		s.tells(15*time.Second, 4)
		s.offerImage(3, "python:3")
		s.phase(15*time.Second, bundleID(3), plan.Running)
		time.Sleep(20 * time.Second)
		if got := s.last().CPUs; got != 4 {
			t.Errorf("with a third run, which has its part of the host, the worker tells %d CPUs", got)
		}
	})
}

func TestRunWhoseResultsAreCollectedLeavesTheHostToOthers(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		collect := s.twoCPUs()
		s.offerWith(bundleID(1), "true", func(*codalab.Message) {})
		s.phase(time.Minute, bundleID(1), plan.Collecting)
		s.tells(15*time.Second, 3)
		close(collect)
		s.result(time.Minute, bundleID(1))
		s.tells(15*time.Second, 2)
	})
}

func TestWorkerTakesABoundedNumberOfRunsWhoseImageDoesNotCome(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.twoCPUs()
		for n := range 100 {
			s.offerImage(n+1, silent)
		}
		s.phase(time.Minute, bundleID(100), plan.Staging)
		s.tells(15*time.Second, 2+64)
		time.Sleep(time.Minute)
		s.tells(0, 2+64)
	})
}

// The server may read of a run's end before it reads the worker's capacity without that run.
func TestWorkerDoesNotClaimWhatItsHostCannotRun(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.twoCPUs()
		s.tells(time.Minute, 2)
		s.offerWith(bundleID(1), "true", func(m *codalab.Message) { m.Resources.CPUs = 3 })
		s.offerImage(2, "python:3")
		s.phase(15*time.Second, bundleID(2), plan.Running)
		if r, ok := s.rows()[bundleID(1)]; ok {
			t.Errorf("the worker claimed a run for 3 CPUs: %s", r.Reason)
		}
	})
}
