package bridge_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

func TestDrainedQueueTakesNothingNewAndFinishesWhatItHas(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.startWith("sleep 600", plan.Running)
		s.bridge.Drain(map[string]string{"cpu": "its operators have drained it (new disks)"})
		s.within(2*time.Second, "a check-in that closes the queue", func() bool {
			in := s.last()
			return in.CPUs == 0 && in.FreeDiskBytes == 0 && in.ExitAfterNumRuns == 0 && in.Closed == "its operators have drained it (new disks)"
		})
		s.offer(bundleID(2), "true") // it was on its way
		s.result(11*time.Minute, bundleID(1))
		if _, ok := s.rows()[bundleID(2)]; ok {
			s.Error("a bundle was claimed while the queue was drained")
		}
		if words := s.bridge.Condition().Drained["cpu"]; words == "" {
			s.Error("its condition does not show that")
		}

		s.bridge.Drain(nil)
		s.within(2*time.Second, "a check-in that opens the queue", func() bool { return s.last().CPUs > 0 && s.last().Closed == "" })
		s.offerAgain()
		s.result(time.Minute, bundleID(2))
	})
}

func TestBridgeThatStartsDrainedIsNeverOfferedABundle(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.alter = func(b *bridge.Bridge) { b.Drain(map[string]string{"cpu": "drained"}) }
		s.start()
		s.within(2*time.Second, "a check-in", func() bool { return s.last().Hostname != "" })
		if s.server.first.CPUs != 0 || s.server.first.Closed != "drained" {
			s.Errorf("its first check-in offers %d CPUs, closed for %q", s.server.first.CPUs, s.server.first.Closed)
		}
	})
}

// The server would give bundles to a stopped bridge for a minute. Its runs must be the bridge's when it is back at once.
func TestStoppedBridgeChecksOutAndKeepsItsRuns(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.startWith("sleep 600", plan.Running)
		s.stop()
		if in := s.last(); in.CPUs != 0 || in.ExitAfterNumRuns != 0 || in.Closed != "the bridge was stopped" || in.IsTerminating || len(in.Reports) != 0 {
			s.Errorf("its last check-in is %+v", in)
		}
		s.start()
		s.within(10*time.Second, "a check-in that opens the queue again", func() bool { return s.last().CPUs > 0 && s.last().Closed == "" })
		if run := s.result(11*time.Minute, bundleID(1)); run.FailureMessage != nil {
			s.Errorf("the run failed: %s", *run.FailureMessage)
		}
	})
}

// A server that does not answer must not hold up the stop of a bridge.
func TestCheckOutWaitsForNoServer(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.server.hold = time.Hour
		s.startWith("sleep 600", plan.Running)
		before := time.Now()
		s.stop()
		if took := time.Since(before); took > 2*time.Second {
			s.Errorf("the stop took %s", took)
		}
	})
}
