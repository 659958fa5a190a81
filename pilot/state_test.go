package pilot_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// observed returns a site whose manager writes its last state to the returned place.
func observed(t *testing.T) (*site, *pilot.State) {
	t.Helper()
	s, last := newSite(t), &pilot.State{}
	s.Observe = func(now pilot.State) { *last = now }
	return s, last
}

// there returns the obstacles that are there.
func there(s *pilot.State) []pilot.Obstacle {
	var found []pilot.Obstacle
	for _, kind := range pilot.Obstacles() {
		if s.Obstacles[kind] {
			found = append(found, kind)
		}
	}
	return found
}

func TestEachWorkerHasOneState(t *testing.T) {
	t.Parallel()
	s, last := observed(t)
	s.stage(8, nil)
	s.pass(0, 8)
	for i := range 7 {
		s.pilots[i].Phase, s.pilots[i].Since = pilot.Active, s.now
	}
	s.checkIn(true, 1, 4)
	s.checkIn(false, 2, 3, 5)
	s.workers[3].IsTerminating = true // of pilot 3
	s.stage(0, nil)
	s.pass(time.Minute, 0)
	s.workers = s.workers[:4]       // the server no longer hears pilot 5
	s.pilots[6].Phase = pilot.Lost  // nobody hears it
	s.pilots[4].Phase = pilot.Lost  // the server hears it
	s.pilots[7].Trouble = "no node" // and pilot 0 has not reached the server
	s.pilots[7].Patience = time.Hour
	s.pass(time.Minute, 0)
	if diff := cmp.Diff(map[pilot.WorkerState]int{
		pilot.WorkerStarting: 1, pilot.WorkerBusy: 2, pilot.WorkerIdle: 1, pilot.WorkerEnding: 1, pilot.WorkerSilent: 1, pilot.WorkerLost: 1, pilot.WorkerStuck: 1,
	}, last.Workers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]pilot.Obstacle{pilot.StuckWorker}, there(last)); diff != "" {
		t.Errorf("obstacles (-want +got):\n%s", diff)
	}
	if want := 7*time.Minute + 5*time.Minute; last.Ran != want { // five of the seven are active at the last look
		t.Errorf("they ran for %s, want %s", last.Ran, want)
	}
	s.pass(time.Hour, 0) // the manager ends the stuck one
	s.stopped = nil
	if s.pass(time.Minute, 0); last.Ends[pilot.EndStuck] != 1 || last.Workers[pilot.WorkerStuck] != 0 {
		t.Errorf("%+v", last)
	}
}

func TestWaitingBundlesAreCountedByTagAndThoseLeftOutByTheLack(t *testing.T) {
	t.Parallel()
	s, last := observed(t)
	s.Shape.Tag, s.Max = "gpu", 0
	s.stage(6, nil)
	began := s.now
	for i, m := range []codalab.Metadata{
		{"request_queue": "gpu"}, {"request_queue": " tag=gpu"}, {}, {"request_queue": "theirs"}, {"request_cpus": 2.0}, {"request_memory": "3g"},
	} {
		for key, value := range m {
			s.staged[i].Metadata[key] = value
		}
	}
	s.pass(0, 0)
	if diff := cmp.Diff(map[string]int{"gpu": 2, "": 1}, last.Waiting); diff != "" {
		t.Errorf("waiting (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[pilot.Lack]int{pilot.LackTag: 1, pilot.LackCPUs: 1, pilot.LackMemory: 1}, last.LeftOut); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]pilot.Obstacle{pilot.MostWorkers}, there(last)); diff != "" {
		t.Errorf("obstacles (-want +got):\n%s", diff)
	}
	s.staged = s.staged[1:] // the first one has begun
	if s.pass(time.Minute, 0); !last.WaitingSince.Equal(began) {
		t.Errorf("waiting since %s, want %s", last.WaitingSince, began)
	}
	s.NoFilter = true // each tag of a user is not a label of its own
	if s.pass(time.Minute, 0); last.Waiting[pilot.OtherTag] != 1 || len(last.Waiting) != 3 {
		t.Errorf("waiting: %v", last.Waiting)
	}
	s.staged = nil
	if s.pass(time.Minute, 0); !last.WaitingSince.IsZero() || len(there(last)) > 0 {
		t.Errorf("nobody waits: %+v", last)
	}
}

func TestStartsAndEndsHaveTheirResults(t *testing.T) {
	t.Parallel()
	s, last := observed(t)
	s.stage(1, nil)
	for _, err := range []error{errors.New("the quota is used up"), &codalab.Error{Status: 503}, doubt{uncertain: true}} {
		s.startErr = err
		s.now = s.now.Add(time.Hour)
		if err := s.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[pilot.StartResult]int{pilot.StartRefused: 1, pilot.StartRefusedNow: 1, pilot.StartUnanswered: 1}, last.Starts); diff != "" {
		t.Errorf("starts (-want +got):\n%s", diff)
	}
	s.startErr = nil
	s.stage(4, nil)
	s.pass(time.Hour, 4) // the uncertain one is forgotten
	if len(there(last)) > 0 || last.Starts[pilot.StartAccepted] != 4 {
		t.Errorf("%v, %v", there(last), last.Starts)
	}
	s.checkIn(true, 0)
	s.stage(0, nil)
	s.pass(time.Minute, 0)
	for i := range 3 {
		s.pilots[i].Phase = pilot.Ended
	}
	s.pilots[1].Cancelled, s.pilots = true, s.pilots[:3] // the last one is forgotten
	s.workers = nil
	s.pass(time.Minute, 0)
	if diff := cmp.Diff(map[pilot.EndResult]int{pilot.EndWorked: 1, pilot.EndCancelled: 1, pilot.EndNeverReached: 1, pilot.EndUnlisted: 2}, last.Ends); diff != "" {
		t.Errorf("ends (-want +got):\n%s", diff)
	}
}

func TestSilenceIsOfTheServerOrOfTheBatchSystem(t *testing.T) {
	t.Parallel()
	s, last := observed(t)
	s.stage(1, nil)
	s.pass(0, 1)
	before := s.now
	for _, test := range []struct {
		server, backend error
		want            []pilot.Obstacle
	}{
		{server: &codalab.Error{Status: 502}, want: []pilot.Obstacle{pilot.ServerUnanswered}},
		{backend: errors.New("squeue failed"), want: []pilot.Obstacle{pilot.BackendUnanswered}},
		{},
	} {
		s.serverErr, s.backendErr = test.server, test.backend
		s.now = s.now.Add(time.Minute)
		if err := s.Pass(t.Context()); (err == nil) != (test.want == nil) {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, there(last)); diff != "" {
			t.Errorf("obstacles (-want +got):\n%s", diff)
		}
		if test.want != nil && !last.Backend.Answered.Equal(before) {
			t.Errorf("the batch system answered at %s, want %s", last.Backend.Answered, before)
		}
	}
	if last.Server.Failures != 1 || last.Backend.Failures != 1 || !last.Server.Answered.Equal(s.now) || !last.Backend.Answered.Equal(s.now) {
		t.Errorf("%+v, %+v", last.Server, last.Backend)
	}
	s.tidyErr = errors.New("no permission")
	if s.pass(time.Minute, 0); !last.Obstacles[pilot.TidyFailed] {
		t.Errorf("%v", there(last))
	}
}
