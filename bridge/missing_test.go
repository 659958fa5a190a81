package bridge_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// unmount leaves an empty directory in the shared disk's place, as one that is
// not mounted does, until the disk is mounted again.
func (s *site) unmount() (mount func()) {
	s.Helper()
	moved, mountpoint := string(s.shared)+".away", string(s.shared)
	if err := errors.Join(os.Rename(mountpoint, moved), os.Mkdir(mountpoint, 0o700)); err != nil {
		s.Fatal(err)
	}
	return func() {
		s.Helper()
		// That it can be removed shows that nothing was written there.
		if err := errors.Join(os.Remove(mountpoint), os.Rename(moved, mountpoint)); err != nil {
			s.Error(err)
		}
	}
}

// gone refuses for good to collect what is not there, as a collector may that
// does not know the shared disk.
type gone struct{ bridge.Collector }

func (g gone) Collect(ctx context.Context, run codalab.RunBundle, runDir string, mode spool.ResultsMode, progress func(string)) (string, error) {
	if _, err := os.Stat(runDir); errors.Is(err, fs.ErrNotExist) {
		return "", &codalab.Error{Status: 400, Message: "the run directory is gone"}
	}
	return g.Collector.Collect(ctx, run, runDir, mode, progress)
}

// TestMissingSpoolMeansUnknownNeverNotStarted takes the shared disk away for a
// while in each phase of a bundle's life. No absence there is believed: nothing
// is submitted, nothing ended and nothing forgotten for it, and nothing is
// written where the disk should be. When it is back all goes on.
func TestMissingSpoolMeansUnknownNeverNotStarted(t *testing.T) {
	t.Parallel()
	offered := func(command string, until plan.Phase) func(s *site) {
		return func(s *site) {
			s.offer(bundleID(1), command)
			s.phase(10*time.Second, bundleID(1), until)
		}
	}
	for name, test := range map[string]struct {
		before func(s *site) // the disk goes
		gone   func(s *site) // what happens then; nil for nothing
		stays  plan.Phase    // where the bundle is when the disk comes back
		// submits is how many submissions there are in the end.
		submits int
	}{
		"before it is prepared": {
			before: func(*site) {}, gone: offered("true", plan.Submitting), stays: plan.Submitting, submits: 1,
		},
		"in the queue, and its job fails": {
			before: func(s *site) {
				s.slurm.held = true
				offered("true", plan.Queued)(s)
				s.slurm.held = false
			},
			gone: (*site).fail, stays: plan.Queued, submits: 2,
		},
		"while it runs": {
			before: offered("sleep 900", plan.Running), stays: plan.Running, submits: 1,
		},
		"while it runs, and its job fails": {
			before: offered("sleep 900", plan.Running), gone: (*site).fail, stays: plan.Running, submits: 1,
		},
		"while it is killed": {
			before: offered("sleep 900", plan.Running), stays: plan.Stopping, submits: 1,
			gone: func(s *site) { s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundleID(1)}) },
		},
		"while its results are collected": {
			before: func(s *site) {
				offered("sleep 5", plan.Running)(s)
				s.server.setDown(true)
				s.phase(10*time.Second, bundleID(1), plan.Collecting)
			},
			gone: func(s *site) { s.server.setDown(false) }, stays: plan.Collecting, submits: 1,
		},
		"when its files are to go": {
			before: offered("true", plan.Done), gone: func(*site) { time.Sleep(2 * time.Minute) }, stays: plan.Done, submits: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				s.alter = func(b *bridge.Bridge) { b.Collector, b.Policy.KeepAfterAck = gone{b.Collector}, time.Minute }
				s.start()
				test.before(s)
				submits, mount := s.slurm.submits, s.unmount()
				if test.gone != nil {
					test.gone(s)
				}
				time.Sleep(10 * time.Minute)
				if r := s.rows()[bundleID(1)]; r.Phase != test.stays || r.Attempt.Number > 1 || s.slurm.submits != submits {
					s.Errorf("without the disk it is %s in attempt %d: %s; %d submissions", r.Phase, r.Attempt.Number, r.Reason, s.slurm.submits)
				}
				mount()
				s.result(20*time.Minute, bundleID(1))
				s.within(5*time.Minute, "it is forgotten", func() bool { return len(s.rows()) == 0 })
				s.stop()
				if s.slurm.submits != test.submits {
					s.Errorf("%d submissions, want %d", s.slurm.submits, test.submits)
				}
				if left, err := os.ReadDir(s.shared.BundleDir("")); err != nil || len(left) != 1 {
					s.Errorf("left in the spool: %v, %v", left, err)
				}
			})
		})
	}
}

// fail has the first job's node fail.
func (s *site) fail() { s.slurm.set(s.slurm.jobs[0], sbatch.StateNodeFail) }
