package bridge_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// comment is that of a job of a bridge.
func comment(bridge string, generation int) string {
	return fmt.Sprintf("codalab bundle=%s attempt=1 owner=1 bridge=%s generation=%d", bundleID(9), bridge, generation)
}

func TestI5JobWithoutARowIsCancelledAfterAGrace(t *testing.T) {
	t.Parallel()
	for _, dryRun := range []bool{false, true} {
		t.Run(map[bool]string{false: "cancelled", true: "only told"}[dryRun], func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				s.dryRun = dryRun
				s.start()
				s.offer(bundleID(1), "sleep 7200") // its job has a row, the ledger's first
				s.phase(2*time.Second, bundleID(1), plan.Running)
				orphan := s.slurm.add("cl-ann-orphan", comment(s.book.ID, 1))
				others := []*fakeJob{
					s.slurm.add("cl-bob-other", comment("0ther0", 99)),
					s.slurm.add("cl-ann-rewritten", "a site's plugin was here"),
					s.slurm.add("cl-ann-half", "codalab bundle=0x1 bridge="+s.book.ID),
					s.slurm.add("shell", ""),
				}
				time.Sleep(3*time.Minute - time.Second)
				if state := s.slurm.state(orphan); state != sbatch.StatePending {
					s.Fatalf("the job is %s before its grace is over", state)
				}
				time.Sleep(8 * time.Second)
				want := map[bool]sbatch.State{false: sbatch.StateCancelled, true: sbatch.StatePending}[dryRun]
				if state := s.slurm.state(orphan); state != want {
					s.Errorf("the job is %s after its grace, want %s", state, want)
				}
				time.Sleep(time.Minute)
				s.stop()
				for _, j := range others {
					if j.State != sbatch.StatePending {
						s.Errorf("job %s (%q) is %s", j.Name, j.Comment, j.State)
					}
				}
				if got := s.slurm.state(s.slurm.jobs[0]); got != sbatch.StateRunning {
					s.Errorf("the job with a row is %s", got)
				}
				if want := map[bool]int{false: 1, true: 0}[dryRun]; s.slurm.cancels != want {
					s.Errorf("%d cancellations, want %d", s.slurm.cancels, want)
				}
			})
		})
	}
}

// crowded is a shared disk that may have no room for specifications.
type crowded struct {
	bridge.Spool

	full *atomic.Bool
}

func (c crowded) Prepare(name spool.AttemptName, s spool.Spec) error {
	if c.full.Load() {
		return syscall.ENOSPC
	}
	return c.Spool.Prepare(name, s)
}

// crowd has bundles wait before sbatch while the returned value is set.
func (s *site) crowd() (full *atomic.Bool) {
	full = &atomic.Bool{}
	s.alter = func(b *bridge.Bridge) { b.Spool = crowded{b.Spool, full} }
	return full
}

// TestI5OldLedgerStopsTheBridge: a ledger was restored from a copy that knows
// of a bundle to be stopped and of one to be submitted, and Slurm, which is
// slow to answer, has a job that is newer than the copy.
func TestI5OldLedgerStopsTheBridge(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]sbatch.State{"of a live job": sbatch.StatePending, "of one that has ended": sbatch.StateCompleted} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				full := s.crowd()
				s.startWith("sleep 7200", plan.Running)
				full.Store(true)
				s.offer(bundleID(2), "true")
				s.phase(2*time.Second, bundleID(2), plan.Submitting)
				s.slurm.change(func() { s.slurm.silent = true })
				s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundleID(1)})
				s.phase(2*time.Second, bundleID(1), plan.Stopping)
				s.stop()
				full.Store(false)
				newer := s.slurm.add("cl-ann-newer", comment(s.book.ID, 1000))
				s.slurm.change(func() {
					newer.State = state
					s.slurm.silent, s.slurm.slow = false, 30*time.Second
					s.slurm.submits, s.slurm.cancels = 0, 0
				})
				s.ends = plan.ErrOutdated
				s.start()
				time.Sleep(10 * time.Minute)
				s.stop()
				if s.slurm.submits+s.slurm.cancels != 0 {
					s.Errorf("%d submissions and %d cancellations by an old ledger", s.slurm.submits, s.slurm.cancels)
				}
			})
		})
	}
}

func TestNothingIsSubmittedBeforeSlurmWasSeen(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		full := s.crowd()
		full.Store(true)
		s.startWith("true", plan.Submitting)
		s.stop()
		full.Store(false)
		s.slurm.change(func() { s.slurm.slow = 30 * time.Second })
		s.start()
		s.offer(bundleID(2), "true")
		time.Sleep(29 * time.Second)
		s.slurm.change(func() {
			if s.slurm.submits != 0 {
				s.Errorf("%d submissions before Slurm was seen", s.slurm.submits)
			}
			s.slurm.slow = 0
		})
		for i := range 2 {
			s.result(10*time.Second, bundleID(i+1))
		}
		s.stop()
		if s.slurm.submits != 2 {
			s.Errorf("%d submissions of two bundles", s.slurm.submits)
		}
	})
}

func TestSlurmIsAskedOnceAMinuteWhileNothingIsInFlight(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		observations := func() (n int) {
			s.slurm.change(func() { n, s.slurm.observed = len(s.slurm.observed), nil })
			return n
		}
		s.start()
		time.Sleep(10*time.Minute + time.Second)
		if n := observations(); n < 10 || n > 11 {
			s.Errorf("asked %d times in ten idle minutes", n)
		}
		s.offer(bundleID(1), "sleep 600")
		s.phase(2*time.Second, bundleID(1), plan.Running)
		s.within(7*time.Second, "Slurm is asked for the new job", func() bool {
			s.slurm.mu.Lock()
			defer s.slurm.mu.Unlock()
			return len(s.slurm.observed) > 0
		})
		observations()
		time.Sleep(5 * time.Minute)
		if n := observations(); n < 49 || n > 51 {
			s.Errorf("asked %d times in five minutes with a job", n)
		}
		s.result(6*time.Minute, bundleID(1))
	})
}
