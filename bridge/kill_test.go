package bridge_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// The job of a killed bundle is cancelled by its id; users rename theirs.
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
				s.wantFailure(s.result(2*time.Second, bundle), codalab.KillRequested)
				s.cancelled(7*time.Second, 1)
			})
		})
	}
}

// cancelled waits until so many jobs are cancelled.
func (s *site) cancelled(limit time.Duration, want int) {
	s.Helper()
	s.within(limit, "the jobs are cancelled", func() bool {
		n := 0
		s.slurm.change(func() {
			for _, j := range s.slurm.jobs {
				if j.State == sbatch.StateCancelled {
					n++
				}
			}
		})
		return n == want
	})
}

// Verdicts of what has not begun wait for no scancel, and one scancel ends many jobs.
func TestThreeHundredKillsAreReportedWithinSeconds(t *testing.T) {
	t.Parallel()
	const bundles = 300
	atSite(t, func(s *site) {
		s.slurm.held = true
		s.start()
		for i := range bundles {
			s.offer(bundleID(i+1), "true")
		}
		s.within(5*time.Minute, "all are in Slurm", func() bool {
			n := 0
			s.slurm.change(func() { n = len(s.slurm.jobs) })
			return n == bundles
		})
		time.Sleep(7 * time.Second) // a snapshot
		began := time.Now()
		for i := range bundles {
			s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundleID(i + 1)})
		}
		s.within(10*time.Minute, "all verdicts are with the server", func() bool {
			n := 0
			s.server.change(func() { n = len(s.server.finished) })
			return n == bundles
		})
		if took := time.Since(began); took > 5*time.Second {
			s.Errorf("the verdicts of %d kills took %s", bundles, took)
		}
		s.cancelled(20*time.Second-time.Since(began), bundles)
		if s.slurm.cancels > 20 {
			s.Errorf("scancel ran %d times", s.slurm.cancels)
		}
		time.Sleep(time.Minute)
		if n := len(s.slurm.jobs); n != bundles {
			s.Errorf("%d jobs", n)
		}
	})
}

// killedInSilence offers a bundle and lets its job wait in Slurm's queue. Then Slurm stops answering, and
// the bundle is killed a minute later. killedInSilence returns when the server has the verdict; the job
// still waits then.
func (s *site) killedInSilence() {
	s.Helper()
	s.slurm.held = true
	bundle := s.startWith("true", plan.Queued)
	time.Sleep(7 * time.Second)
	s.slurm.change(func() { s.slurm.silent = true })
	time.Sleep(time.Minute)
	s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundle})
	s.result(2*time.Second, bundle)
}

// The bridge dies once it has reported a kill.
func TestJobOfAReportedKillIsCancelledAfterACrash(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.killedInSilence()
		s.stop()
		if state := s.slurm.state(s.slurm.jobs[0]); state != sbatch.StatePending {
			s.Fatalf("the job is %s", state)
		}
		s.slurm.change(func() { s.slurm.silent = false })
		s.start()
		s.cancelled(13*time.Second, 1)
	})
}

// A controller that lost its state has given the id of a killed bundle's job to another's.
func TestKillSparesAJobThatHasTheIDOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.killedInSilence()
		s.slurm.change(func() { s.slurm.silent, s.slurm.jobs = false, nil })
		other := s.slurm.add("shell", "")
		time.Sleep(5 * time.Minute)
		s.stop()
		if s.slurm.cancels != 0 || other.ID != 1 || other.State != sbatch.StatePending {
			s.Errorf("scancel ran %d times; job %s is %s", s.slurm.cancels, other.ID, other.State)
		}
	})
}

func TestKillWhileRunningKeepsWhatThereIs(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		bundle := s.startWith("sleep 1000", plan.Running)
		s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundle})
		run := s.result(10*time.Second, bundle) // after the snapshot that shows its job
		s.wantFailure(run, codalab.KillRequested)
		if run.ExitCode == nil || *run.ExitCode != 143 {
			s.Errorf("result %+v, want exit code 143", run)
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
				synctest.Wait() // sbatch has run
				s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundle})
				s.result(2*time.Second, bundle)
				s.slurm.change(func() {
					s.slurm.silent = false
					if !made {
						s.slurm.jobs = nil
					}
				})
				if made {
					s.cancelled(2*time.Minute, 1)
				}
				time.Sleep(2 * time.Minute)
				s.stop()
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
		s.wantFailure(s.result(2*time.Second, bundleID(1)), codalab.KillRequested)
		s.stop()
		if s.slurm.submits != 0 {
			s.Errorf("%d submissions", s.slurm.submits)
		}
	})
}

// A kill cuts an upload of an hour short. The end of the output takes its place.
func TestKillGivesTheUploadOfResultsUp(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		c := &patient{Collector: s.server, takes: time.Hour}
		s.alter = func(b *bridge.Bridge) { b.Collector = c }
		s.start()
		bundle := bundleID(1)
		s.offer(bundle, "true")
		s.phase(time.Minute, bundle, plan.Collecting)
		s.within(5*time.Second, "the upload runs", func() bool {
			s.server.mu.Lock()
			defer s.server.mu.Unlock()
			return s.server.runs[bundle].RunStatus == "Uploading results: 1.2g of 3.4g at 80m/s."
		})
		s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundle, KillMessage: codalab.KillUpload})
		report := s.result(5*time.Second, bundle)
		if report.FailureMessage == nil || !strings.HasPrefix(*report.FailureMessage,
			"Kill requested. The upload of the results (8g in 3 entries) was given up. The end of stdout and stderr is at the server. All files stay in ") {
			s.Errorf("it ended as %+v", report)
		}
		s.server.change(func() {
			if got := s.server.uploads[bundle]; got != "the end of the output" {
				s.Errorf("the server has %q", got)
			}
		})
		s.phase(time.Minute, bundle, plan.Done)
		s.stop()
	})
}
