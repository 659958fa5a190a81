package bridge_test

import (
	"os"
	"path/filepath"
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

// replace gives a bundle's UUID to another user's bundle. The bridge does not hear of it.
func (s *site) replace(bundle string) {
	s.server.change(func() {
		s.server.identities[bundle] = codalab.Identity{UUID: bundle, OwnerID: "2", Command: "cat stolen"}
	})
}

// The bridge has not heard of the second bundle when it is to deliver the results of the first.
func TestI9ResultsAreNotDeliveredToAnotherBundleOfTheUUID(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		bundle := s.startWith("sleep 60", plan.Running)
		s.replace(bundle)
		s.phase(2*time.Minute, bundle, plan.Done)
		s.stop()
		if got, delivered := s.server.uploads[bundle]; delivered || s.server.acked[bundle] {
			s.Errorf("delivered %q, reported %t, want nothing: the bundle is another one", got, s.server.acked[bundle])
		}
	})
}

// A run still goes on, or its row is still kept, when another user's bundle has its UUID. The server
// passes on what that user asks of the new bundle.
func TestI9FilesOfARunAreNotServedForAnotherBundleOfItsUUID(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		bundle := s.startWith("sleep 60", plan.Running)
		ask := func(socket int64) (served bool) {
			s.server.send(codalab.Message{Type: codalab.MessageRead, UUID: bundle, SocketID: socket, Path: "stdout", ReadArgs: &codalab.ReadArgs{Type: codalab.ReadFile}})
			s.within(5*time.Second, "an answer", func() (answered bool) {
				s.server.change(func() {
					served = s.server.data[socket] != nil
					answered = served || s.server.replies[socket].ErrorCode != 0
				})
				return answered
			})
			return served
		}
		written := filepath.Join(s.shared.RunDir(bundle, s.rows()[bundle].OnDisk), "note")
		if !ask(1) {
			s.Errorf("its own bundle's: %+v", s.server.replies[1])
		}
		s.replace(bundle)
		if ask(2) {
			s.Errorf("served %q to the owner of another bundle", s.server.data[2])
		}
		s.server.send(codalab.Message{Type: codalab.MessageWrite, UUID: bundle, Subpath: "note", String: "stop"})
		s.phase(2*time.Minute, bundle, plan.Done)
		if ask(3) {
			s.Errorf("served %q of a run that has ended", s.server.data[3])
		}
		if text, err := os.ReadFile(written); err == nil {
			s.Errorf("another user has written %q into the run", text)
		}
		s.stop()
	})
}
