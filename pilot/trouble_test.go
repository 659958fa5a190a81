package pilot_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/pilot"
)

func TestPilotThatCannotStartIsToldEndedAndStartedAgainLater(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(1, nil)
	s.pass(0, 1)
	s.pilots[0].Trouble, s.pilots[0].Patience = "Failed to pull image \"lab/x\"", 5*time.Minute
	s.pass(10*time.Second, 0)
	s.pass(4*time.Minute, 0)
	s.logged(`msg="worker does not start" worker=`+pilot.WorkerID(s.pilots[0].Name)+` job=1 reason="Failed to pull image`, 1)
	if len(s.stopped) > 0 {
		t.Fatalf("%v ended before its patience had ended", s.stopped)
	}
	s.pass(time.Minute, 0) // it is ended now, and no other is started at once
	if len(s.stopped) != 1 {
		t.Fatalf("%v were ended, want one", s.stopped)
	}
	s.pass(10*time.Second, 0)
	s.pass(2*time.Minute, 1)
	s.logged("never reached the server", 0)
	if len(s.stopped) != 1 {
		t.Errorf("%v were ended", s.stopped)
	}
}

// A pilot whose trouble has passed has a whole patience again.
func TestTroubleThatPassesEndsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(1, nil)
	s.pass(0, 1)
	for range 5 {
		s.pilots[0].Trouble, s.pilots[0].Patience = "0/3 nodes are available", 5*time.Minute
		s.pass(10*time.Second, 0)
		s.pass(4*time.Minute, 0)
		s.pilots[0].Trouble = ""
		s.pass(10*time.Second, 0)
	}
	if len(s.stopped) > 0 {
		t.Errorf("%v were ended", s.stopped)
	}
}

// A kubelet that has ended does not answer, and its pods run on. A machine that is gone is silent to the server, too.
func TestPilotOfALostNodeCountsWhileTheServerHearsIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Max = 1
	s.stage(1, nil)
	s.pass(0, 1)
	s.pilots[0].Phase, s.pilots[0].Since, s.pilots[0].Node = pilot.Active, s.now, "n1"
	s.checkIn(true, 0)
	s.stage(0, nil)
	s.pass(time.Minute, 0)
	s.pilots[0].Phase, s.pilots[0].Reason = pilot.Lost, "node n1 is not ready"
	s.stage(1, nil)
	heard := s.workers
	s.pass(time.Minute, 0) // there may be one worker, and the server hears it
	s.workers = nil
	s.pass(time.Minute, 1)
	s.logged("worker's node is lost", 1)
	found, err := s.Survey(t.Context())
	if err != nil || len(found.Pilots) != 2 || found.Pilots[0].Reason != "node n1 is not ready" {
		t.Errorf("the survey is %+v, %v", found, err)
	}
	s.pilots[0].Phase, s.pilots[0].Reason = pilot.Active, ""
	s.workers = heard
	s.pass(time.Minute, 0)
	s.logged("worker's node is back", 1)
	s.logged("has not started", 0)
}
