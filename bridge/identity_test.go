package bridge_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// A bundle is deleted and another user's gets its UUID while the bridge still keeps the first one's
// results: it runs, and gets its own end.
func TestI9BundleWithTheUUIDOfADeletedOneRunsItself(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.start()
		bundle := bundleID(1)
		s.offer(bundle, "true")
		s.result(5*time.Second, bundle)
		s.phase(5*time.Second, bundle, plan.Done)
		s.server.change(func() {
			delete(s.server.acked, bundle)
			delete(s.server.finished, bundle)
			delete(s.server.uploads, bundle)
		})
		s.offer(bundle, "exit 3")
		s.within(10*time.Second, "the first row is forgotten", func() bool { return len(s.rows()) == 0 })
		s.offerAgain()
		run := s.result(10*time.Second, bundle)
		s.stop()
		if run.ExitCode == nil || *run.ExitCode != 3 || len(s.slurm.jobs) != 2 {
			s.Errorf("result %+v of %d jobs, want that of its own command", run, len(s.slurm.jobs))
		}
	})
}

// The bridge has not heard of the second bundle when it is to deliver the results of the first.
func TestI9ResultsAreNotDeliveredToAnotherBundleOfTheUUID(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.start()
		bundle := bundleID(1)
		s.offer(bundle, "sleep 60")
		s.phase(5*time.Second, bundle, plan.Running)
		s.server.change(func() {
			s.server.identities[bundle] = codalab.Identity{UUID: bundle, OwnerID: "2", Command: "cat stolen"}
		})
		s.phase(2*time.Minute, bundle, plan.Done)
		s.stop()
		if got, delivered := s.server.uploads[bundle]; delivered || s.server.acked[bundle] {
			s.Errorf("delivered %q, reported %t, want nothing: the bundle is another one", got, s.server.acked[bundle])
		}
	})
}
