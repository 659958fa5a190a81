package bridge_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// scancel is told the job's present name, so that it ends no other job; users rename theirs.
func TestKillWhileQueued(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "mine"} {
		t.Run("renamed to "+name, func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				s.slurm.held = true
				bundle := s.startWith("true", plan.Queued)
				if name != "" {
					s.slurm.change(func() { s.slurm.jobs[0].Name = name })
					time.Sleep(7 * time.Second)
				}
				s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundle})
				run := s.result(2*time.Second, bundle)
				if run.FailureMessage == nil || *run.FailureMessage != codalab.KillRequested {
					s.Errorf("failure %v, want %q", run.FailureMessage, codalab.KillRequested)
				}
				s.stop()
				if s.slurm.jobs[0].State != sbatch.StateCancelled {
					s.Errorf("job is %s", s.slurm.jobs[0].State)
				}
			})
		})
	}
}

func TestKillWhileRunningKeepsWhatThereIs(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		bundle := s.startWith("sleep 1000", plan.Running)
		s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundle})
		run := s.result(3*time.Second, bundle)
		if run.FailureMessage == nil || *run.FailureMessage != codalab.KillRequested || *run.ExitCode != 143 {
			s.Errorf("result %v %v, want killed with 143", run.FailureMessage, run.ExitCode)
		}
		s.stop()
		if s.server.uploads[bundle] == "" {
			s.Error("partial results are lost")
		}
	})
}

// TestKillWhileSubmissionIsUnknown: the answer was lost, and the job may start
// at any moment.
func TestKillWhileSubmissionIsUnknown(t *testing.T) {
	t.Parallel()
	for _, made := range []bool{true, false} {
		t.Run(map[bool]string{true: "there is a job", false: "there is none"}[made], func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				s.slurm.held = true
				s.slurm.answer = func() error {
					s.slurm.silent = true
					return &sbatch.Error{Message: "timed out", Err: errSilent}
				}
				bundle := s.startWith("true", plan.Submitting)
				s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundle})
				s.phase(2*time.Second, bundle, plan.Stopping)
				s.slurm.change(func() {
					s.slurm.silent = false
					if !made {
						s.slurm.jobs = nil
					}
				})
				s.result(2*time.Minute, bundle)
				s.stop()
				if made && s.slurm.jobs[0].State != sbatch.StateCancelled {
					s.Errorf("job is %s", s.slurm.jobs[0].State)
				}
				if s.slurm.submits != 1 {
					s.Errorf("%d submissions", s.slurm.submits)
				}
			})
		})
	}
}

func TestKillThatComesWithTheOffer(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.server.messages = []codalab.Message{{Type: codalab.MessageKill, UUID: bundleID(1)}}
		s.offer(bundleID(1), "true")
		s.start()
		run := s.result(2*time.Second, bundleID(1))
		s.stop()
		if run.FailureMessage == nil || *run.FailureMessage != codalab.KillRequested || s.slurm.submits != 0 {
			s.Errorf("failure %v, %d submissions", run.FailureMessage, s.slurm.submits)
		}
	})
}
