package bridge_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// passed is a pass that has ended.
type passed struct {
	left bridge.Pass
	took time.Duration
	rows map[string]plan.Row
}

// pass makes one pass.
func (s *site) pass(limit time.Duration) passed {
	s.Helper()
	ended, p := false, passed{}
	s.alter = func(b *bridge.Bridge) {
		b.Once = &bridge.Once{Quiet: 12 * time.Second, Patience: time.Minute, StuckAfter: 30 * time.Minute, Ended: func(left bridge.Pass) { p.left, ended = left, true }}
	}
	began := time.Now()
	s.start()
	select {
	case err := <-s.ended:
		s.ended <- err
	case <-time.After(limit):
		for _, r := range s.rows() {
			s.Logf("%s: %s: %s (due %s)", r.Bundle, r.Phase, r.Reason, r.DueAt)
		}
		s.Fatalf("the pass has not ended within %v", limit)
	}
	p.took, p.rows = time.Since(began), s.rows()
	s.stop()
	if !ended && s.ends == nil {
		s.Error("the pass ended by no decision of its own")
	}
	return p
}

// Cron begins a pass every few minutes. Jobs that run and results that are ready are never lost between two passes.
func TestPassesOfCronRunABundleFromOfferToResult(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]time.Duration{"a minute": time.Minute, "an hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				s.offer(bundleID(1), "sleep 100")
				p := s.pass(2 * time.Minute)
				if want := (bridge.Pass{InSlurm: 1}); p.left != want || p.took > time.Minute || p.rows[bundleID(1)].Phase != plan.Running {
					t.Fatalf("the first pass took %v, and left %+v, %s", p.took, p.left, p.rows[bundleID(1)].Phase)
				}
				if in := s.last(); in.CPUs != 0 || in.Closed == "" || len(in.Reports) != 0 {
					t.Errorf("its last check-in is %+v", in)
				}
				passes := 1
				for s.server.finished[bundleID(1)].UUID == "" && passes < 10 {
					time.Sleep(between)
					s.offerAgain()
					p = s.pass(5 * time.Minute)
					passes++
				}
				if run := s.server.finished[bundleID(1)]; run.FailureMessage != nil || run.ExitCode == nil || *run.ExitCode != 0 {
					t.Errorf("it ended as %+v", run)
				}
				if p.left != (bridge.Pass{}) || s.server.verdicts[bundleID(1)] != 1 {
					t.Errorf("after %d passes %+v is left, and %d verdicts were reported", passes, p.left, s.server.verdicts[bundleID(1)])
				}
				if s.slurm.submits != 1 {
					t.Errorf("it was submitted %d times", s.slurm.submits)
				}
			})
		})
	}
}

// A pass without anything to do is short.
func TestPassWithNothingToDoEnds(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		if p := s.pass(time.Minute); p.left != (bridge.Pass{}) || p.took > 20*time.Second {
			t.Errorf("it took %v, and left %+v", p.took, p.left)
		}
	})
}

// What a user killed between two passes ends in the next one.
func TestPassEndsWhatWasKilled(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.offer(bundleID(1), "sleep 100000")
		s.pass(2 * time.Minute)
		time.Sleep(10 * time.Minute)
		s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundleID(1), KillMessage: codalab.KillRequested})
		if p := s.pass(10 * time.Minute); p.left != (bridge.Pass{}) {
			t.Errorf("the pass left %+v", p.left)
		}
		if s.server.finished[bundleID(1)].UUID == "" {
			t.Error("the bundle has not ended")
		}
	})
}

// Cron must not hang: a pass without an answer of the server or of Slurm ends, with an error that the next one may mend.
func TestPassWithoutAnAnswerEnds(t *testing.T) {
	t.Parallel()
	for name, silence := range map[string]func(s *site, silent bool){
		"server": func(s *site, silent bool) { s.server.setDown(silent) },
		"Slurm":  func(s *site, silent bool) { s.slurm.change(func() { s.slurm.silent = silent }) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				s.offer(bundleID(1), "sleep 1")
				silence(s, true)
				s.ends = bridge.ErrAway
				if p := s.pass(10 * time.Minute); p.took > 5*time.Minute {
					t.Errorf("it took %v", p.took)
				}
				silence(s, false)
				s.ends = nil
				s.offerAgain()
				s.pass(10 * time.Minute)
				if s.server.finished[bundleID(1)].UUID == "" {
					t.Error("the bundle has not ended in the next pass")
				}
			})
		})
	}
}

// A failure that somebody has to mend is no success of the pass.
func TestPassTellsOfWhatAils(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.slurm.refuse = func(sbatch.Request) error {
			return &sbatch.Error{Op: "submit", Refused: true, Retry: true, Message: "System submissions disabled"}
		}
		s.offer(bundleID(1), "sleep 1")
		if p := s.pass(10 * time.Minute); p.left.Ailing != 1 || p.left.Waiting != 1 {
			t.Errorf("the pass left %+v", p.left)
		}
	})
}
