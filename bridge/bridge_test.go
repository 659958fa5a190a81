package bridge_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// atSite runs a test in a bubble of its own time, at a site of its own.
func atSite(t *testing.T, test func(s *site)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		test(newSite(t, dir))
	})
}

func TestBundleGoesFromOfferToForgotten(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.start()
		bundle := bundleID(1)
		start := time.Now()
		s.offer(bundle, "sleep 3")
		s.phase(2*time.Second, bundle, plan.Running)
		s.within(time.Second, "the server hears that it runs", func() bool {
			s.server.mu.Lock()
			defer s.server.mu.Unlock()
			run := s.server.runs[bundle]
			return run.State == codalab.StateRunning && run.Remote == "n1"
		})
		run := s.result(5*time.Second, bundle)
		if took := time.Since(start) - 3*time.Second; took > time.Second {
			s.Errorf("took %s beside the command", took)
		}
		if run.ExitCode == nil || *run.ExitCode != 0 || run.FailureMessage != nil {
			s.Errorf("result %+v, want a success", run)
		}
		s.server.mu.Lock()
		if s.server.uploads[bundle] != hello(bundle, 1) {
			s.Errorf("uploaded %q", s.server.uploads[bundle])
		}
		s.server.mu.Unlock()
		s.phase(time.Second, bundle, plan.Done)
		time.Sleep(time.Hour)
		s.within(time.Second, "the row is forgotten", func() bool { return len(s.rows()) == 0 })
		s.stop()
		if s.slurm.submits != 1 || s.slurm.cancels != 0 {
			s.Errorf("%d submissions, %d cancellations", s.slurm.submits, s.slurm.cancels)
		}
	})
}

func TestI1RowIsSavedBeforeItsEffects(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.start()
		s.slurm.before = func(r sbatch.Request) {
			for _, row := range s.rows() {
				if string(row.SubmissionName) == r.Name && row.Phase == plan.Submitting && !row.SubmittedAt.IsZero() {
					return
				}
			}
			s.Errorf("sbatch of %s before its row was saved: %v", r.Name, s.rows())
		}
		for i := range 5 {
			s.offer(bundleID(i), "true")
		}
		for i := range 5 {
			s.result(time.Minute, bundleID(i))
		}
	})
}

func TestLostSubmitAnswerIsAdopted(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.slurm.answer = func() error { return &sbatch.Error{Message: "timed out", Err: errors.New("killed")} }
		s.start()
		for i := range 3 {
			s.offer(bundleID(i), "sleep 20")
		}
		for i := range 3 {
			if run := s.result(time.Minute, bundleID(i)); *run.ExitCode != 0 {
				s.Errorf("result %+v", run)
			}
		}
		s.stop()
		if s.slurm.submits != 3 {
			s.Errorf("%d submissions of 3 bundles", s.slurm.submits)
		}
	})
}

func TestSubmissionWithoutAJobIsRepeated(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.start()
		time.Sleep(time.Second)
		s.slurm.change(func() { s.slurm.silent = true })
		bundle := bundleID(1)
		s.offer(bundle, "true")
		s.phase(2*time.Second, bundle, plan.Submitting)
		time.Sleep(10 * time.Minute)
		s.slurm.change(func() {
			if s.slurm.submits != 1 {
				s.Errorf("%d submissions to a Slurm that does not answer", s.slurm.submits)
			}
			s.slurm.silent = false
		})
		s.result(2*time.Minute, bundle)
		row := s.rows()[bundle]
		s.stop()
		if s.slurm.submits != 2 || row.Attempt.Number != 1 {
			s.Errorf("%d submissions, attempt %d, want the first attempt's second", s.slurm.submits, row.Attempt.Number)
		}
	})
}

func TestOutageOfSlurmLosesNoSubmission(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.startWith("sleep 3600", plan.Running)
		s.slurm.change(func() { s.slurm.silent, s.slurm.observed = true, nil })
		s.within(10*time.Second, "Slurm does not answer", func() bool { return s.bridge.Condition().Slurm != "" })
		began := time.Now()
		s.offer(bundleID(2), "true")
		s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundleID(1)})
		time.Sleep(5 * time.Minute)
		got := s.bridge.Condition()
		if got.SlurmSince.After(began) || !got.SlurmNext.After(time.Now()) || got.Slurm != errSilent.Error() {
			s.Errorf("five minutes after %s the condition is %+v", began, got)
		}
		row := s.rows()[bundleID(2)]
		s.slurm.change(func() {
			if s.slurm.submits != 1 || s.slurm.cancels != 0 || len(s.slurm.observed) > 9 || row.Phase != plan.Staging || row.FailedTries > 0 {
				s.Errorf("%d submissions, %d cancellations, %d observations; the row waits in %s: %s",
					s.slurm.submits, s.slurm.cancels, len(s.slurm.observed), row.Phase, row.Reason)
			}
			s.slurm.silent = false
		})
		for n := range 2 {
			s.result(2*time.Minute, bundleID(n+1))
		}
		if got := s.bridge.Condition(); !got.SlurmSince.IsZero() || !got.SlurmNext.IsZero() || got.Slurm != "" {
			s.Errorf("after the outage the condition is %+v", got)
		}
		s.stop()
		if s.slurm.submits != 2 {
			s.Errorf("%d submissions of two bundles", s.slurm.submits)
		}
	})
}

func TestRefusedSubmissionFailsInSlurmsWords(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.slurm.held = true
		s.slurm.answer = func() error {
			return &sbatch.Error{Message: "Invalid qos specification", Refused: true, Err: errors.New("exit status 1")}
		}
		s.start()
		s.offer(bundleID(1), "true")
		run := s.result(2*time.Second, bundleID(1))
		s.wantFailure(run, "Slurm refused the job: Invalid qos specification.")
	})
}

// TestRestartInTheMiddle stops the bridge at each moment of a bundle's way,
// and starts it again later.
func TestRestartInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, down := range []time.Duration{time.Second, time.Hour} {
		t.Run("down for "+down.String(), func(t *testing.T) {
			t.Parallel()
			for at := time.Duration(0); at < 6*time.Second; at += 400 * time.Millisecond {
				t.Run("after "+at.String(), func(t *testing.T) {
					t.Parallel()
					atSite(t, func(s *site) {
						s.start()
						bundle := bundleID(1)
						s.offer(bundle, "sleep 3")
						time.Sleep(at)
						s.stop()
						time.Sleep(down)
						s.start()
						s.offerAgain()
						run := s.result(3*time.Minute, bundle)
						s.stop()
						if run.FailureMessage != nil || *run.ExitCode != 0 || s.server.uploads[bundle] == "" {
							s.Errorf("result %+v", run)
						}
						if len(s.slurm.jobs) != 1 {
							s.Errorf("%d jobs", len(s.slurm.jobs))
						}
					})
				})
			}
		})
	}
}

func TestResultsAreDeliveredWhenTheServerIsBack(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		bundle := s.startWith("sleep 3", plan.Running)
		s.server.setDown(true)
		time.Sleep(20 * time.Minute)
		s.server.mu.Lock()
		if s.server.checkIns > 120 {
			s.Errorf("%d check-ins in 20 minutes at a server that does not answer", s.server.checkIns)
		}
		s.server.down = false
		s.server.mu.Unlock()
		run := s.result(2*time.Minute, bundle)
		s.stop()
		if run.FailureMessage != nil || s.server.uploads[bundle] == "" {
			s.Errorf("result %+v, upload %q", run, s.server.uploads[bundle])
		}
	})
}

func TestJobThatVanishedWithItsNodeEndsTheBundle(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		bundle := s.startWith("sleep 100000", plan.Running)
		s.slurm.change(func() { s.slurm.jobs[0].State = sbatch.StateNodeFail })
		run := s.result(time.Minute, bundle)
		s.wantFailure(run, "The node of Slurm job 1 failed while it ran on n1")
	})
}

// TestSupersededResultsAreNotAccepted: the node of the first attempt was only
// cut off, and its worker ends while the second attempt runs.
func TestSupersededResultsAreNotAccepted(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.queue.RetryBegun = plan.RetryOnPlatform
		bundle := s.startWith("sleep 60", plan.Running)
		s.slurm.change(func() { s.slurm.jobs[0].State = sbatch.StateNodeFail })
		s.within(30*time.Second, "the second attempt runs", func() bool {
			row := s.rows()[bundle]
			return row.Attempt.Number == 2 && row.Phase == plan.Running
		})
		second := time.Now()
		s.result(2*time.Minute, bundle)
		s.stop()
		if took := time.Since(second); took < 55*time.Second {
			s.Errorf("ended %s after the second attempt began", took)
		}
		if got := s.server.uploads[bundle]; got != hello(bundle, 2) || len(s.slurm.jobs) != 2 {
			s.Errorf("uploaded %q of %d jobs", got, len(s.slurm.jobs))
		}
	})
}

func TestQueueHoldsNoMoreJobsThanItMay(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.queue.MaxInFlight = 2
		s.slurm.before = func(sbatch.Request) {
			flying := 0
			for _, row := range s.rows() {
				if row.InFlight() {
					flying++
				}
			}
			if flying > 2 {
				s.Errorf("%d rows in flight", flying)
			}
		}
		s.start()
		start := time.Now()
		for i := range 6 {
			s.offer(bundleID(i), "sleep 5")
		}
		for i := range 6 {
			s.result(time.Minute, bundleID(i))
		}
		if took := time.Since(start); took > 20*time.Second {
			s.Errorf("three pairs of 5 s took %s: a place that was free was not taken at once", took)
		}
	})
}

func TestSubmissionsKeepToTheRate(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.slurm.held = true
		s.start()
		for i := range 50 {
			s.offer(bundleID(i), "true")
		}
		s.within(16*time.Second, "all are submitted, two a second after the first twenty", func() bool {
			s.slurm.mu.Lock()
			defer s.slurm.mu.Unlock()
			return s.slurm.submits == 50
		})
	})
}
