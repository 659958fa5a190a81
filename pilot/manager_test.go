package pilot_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/pilot"
)

func TestTenBundlesStartTenPilotsInOnePassWithOneLook(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(10, nil)
	s.pass(0, 10)
	s.pass(time.Second, 0)
	if s.looks != 1 {
		t.Errorf("%d looks at the backend, want 1", s.looks)
	}
	s.pass(time.Minute, 0)
}

// TestManagerThatMayStartNoneAsksNoMoreOften counts the looks at the backend while starts are refused for half an hour.
func TestManagerThatMayStartNoneAsksNoMoreOften(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.refresh = 20 * time.Second
	s.startErr = errors.New("the quota is used up")
	s.stage(1, nil)
	for range 1800 {
		s.now = s.now.Add(time.Second)
		if err := s.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if most := 1800/20 + s.started + 1; s.looks > most {
		t.Errorf("%d looks at the backend, and %d starts; want at most %d looks", s.looks, s.started, most)
	}
}

func TestSearchIsThatOfCodaLabsManagerWithoutItsLimit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		change func(*pilot.Manager)
		want   string
	}{
		{func(*pilot.Manager) {}, "state=staged .mine .limit=100000"},
		{func(m *pilot.Manager) { m.Everybody = true }, "state=staged .limit=100000"},
		{func(m *pilot.Manager) { m.Search = []string{"name=x", "owner=bob"} }, "state=staged name=x owner=bob .mine .limit=100000"},
		{func(m *pilot.Manager) { m.Shape.Tag = "t" }, "state=staged .mine .limit=100000"},
		{func(m *pilot.Manager) { m.Shape.Tag, m.Shape.Exclusive = "t", true }, "state=staged .mine request_queue=t,tag=t .limit=100000"},
	} {
		s := newSite(t)
		test.change(s.Manager)
		s.pass(0, 0)
		if got := strings.Join(s.keywords[0], " "); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}

func TestPilotThatTheServerKnowsIsNotComing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(1, nil)
	s.pass(0, 1)
	s.pilots[0].Phase = pilot.Active
	s.checkIn(true, 0)
	s.pass(time.Second, 1) // it has no room
	s.logged("worker has reached the server", 1)
}

func TestRoomOfARunningPilotStartsNoOther(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(1, nil)
	s.pass(0, 1)
	s.checkIn(false, 0)
	for range 10 {
		s.pass(10*time.Second, 0)
	}
}

// The server lists the workers and their runs later than the staged bundles, and the batch system answers later still.
func TestRunThatBeginsDuringAPassStartsNoPilot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(2, nil)
	s.pass(0, 2)
	s.checkIn(true, 0)
	s.duringLook = func() { s.stage(1, nil) }
	s.pass(time.Minute, 0)
	s.stage(2, nil)
	s.duringLook = nil // a new bundle
	s.pass(time.Minute, 1)
}

func TestMemoryOfRunsIsNotFree(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Shape = pilot.Shape{CPUs: 4, Memory: 4 * gib}
	s.pilots = []pilot.Pilot{{Name: s.NewName(), Phase: pilot.Active, Since: s.now}}
	s.checkIn(false, 0)
	s.workers[0].CPUs, s.workers[0].MemoryBytes, s.workers[0].CPUsInUse = 4, 4*gib, 1
	s.workers[0].RunUUIDs = []string{"0x" + strings.Repeat("f", 32)} // of 1 GiB
	s.stage(1, codalab.Metadata{"request_memory": "3g"})
	s.pass(0, 0)
	s.stage(1, codalab.Metadata{"request_memory": "4g"})
	s.pass(time.Second, 1)
}

// A bundle that fits the requested shape, but not the real one of workers, must not start pilot after pilot.
func TestPilotsThatAreSmallerThanAskedForAreNotStartedForever(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(1, nil)
	s.pass(0, 1)
	s.checkIn(false, 0)
	s.workers[0].MemoryBytes = 2*gib - 4096
	for range 20 {
		s.pass(10*time.Second, 0)
	}
	s.logged("it asks for 2g of memory", 1)
}

// Azure Batch and Slurm start a job again whose node is lost. The bundle of that node is staged again, and waits for it.
func TestPilotThatWaitsAgainIsComing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(1, nil)
	s.pass(0, 1)
	s.pilots[0].Phase, s.pilots[0].Since = pilot.Active, s.now
	s.checkIn(true, 0)
	s.stage(0, nil)
	s.pass(time.Minute, 0)
	s.pilots[0].Phase = pilot.Pending
	s.stage(1, nil)
	s.pass(time.Minute, 0) // the server still knows the old worker
	s.workers = nil
	s.pass(time.Minute, 0) // it has forgotten it
	s.pilots[0].Phase, s.pilots[0].Since = pilot.Active, s.now
	s.pass(time.Minute, 0) // it begins
	s.checkIn(true, 0)
	s.pass(time.Minute, 1) // it has a run
}

// One that begins again between two looks is coming, too, but not for ever.
func TestPilotThatBeginsAgainIsComing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(1, nil)
	s.pass(0, 1)
	s.pilots[0].Phase, s.pilots[0].Since = pilot.Active, s.now
	s.checkIn(true, 0)
	s.stage(0, nil)
	s.pass(time.Minute, 0)
	s.workers[0].CheckInTime = s.now.Unix()
	s.pilots[0].Since = s.now.Add(30 * time.Second)
	s.pass(time.Minute, 0)
	s.pass(time.Minute, 0) // the server still knows the worker of the lost node
	s.workers = nil
	s.stage(1, nil)
	s.pass(time.Minute, 0)
	s.pass(time.Hour, 1)
}

// The first run may begin and end between two looks.
func TestPilotThatIsSeenOnlyWhenItWaitsAgainIsComing(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"it waits": true, "it begins": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.stage(1, nil)
			s.pass(0, 1)
			s.checkIn(true, 0)
			s.stage(0, nil)
			if waits {
				s.pilots[0].Phase = pilot.Pending
				s.pass(time.Minute, 0)
			} else {
				s.now = s.now.Add(time.Minute)
				s.pilots[0].Phase, s.pilots[0].Since = pilot.Active, s.now
				s.pass(0, 0)
			}
			s.workers = nil
			s.stage(1, nil)
			s.pass(time.Minute, 0)
		})
	}
}

// A worker that is preempted gives its run back while the batch system is asked.
func TestBundleThatIsStagedAgainDuringALookWaitsForTheNextOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(1, nil)
	s.duringLook = func() { s.stage(2, nil) }
	s.pass(0, 1)
	s.pass(time.Minute, 1)
}

func TestPilotsAreFoundAgainAfterARestart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(3, nil)
	s.pass(0, 3)
	again := newSite(t)
	again.pilots, again.staged = s.pilots, s.staged
	again.pass(0, 0)
	again.logged("found a worker", 3)
}

func TestNoAnswerStartsNothingAndFreesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Max = 1
	s.stage(1, nil)
	s.pass(0, 1)
	s.stage(5, nil)
	pilots := s.pilots
	s.pilots, s.backendErr = nil, errors.New("no answer")
	s.now = s.now.Add(time.Minute)
	if err := s.Pass(t.Context()); err == nil || s.started != 1 {
		t.Errorf("%v, %d started", err, s.started)
	}
	s.pilots, s.backendErr, s.serverErr = pilots, nil, &codalab.Error{Status: 502}
	if err := s.Pass(t.Context()); err == nil || s.started != 1 {
		t.Errorf("%v, %d started", err, s.started)
	}
	s.serverErr = nil
	s.pass(time.Second, 0) // its slot is still taken
}

func TestLostAnswerOfASubmissionHoldsASlotForAWhile(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Max = 1
	s.stage(1, nil)
	s.startErr = doubt{true}
	s.pass(0, 1)
	s.startErr = nil
	for range 11 {
		s.pass(10*time.Second, 0)
	}
	s.pass(10*time.Second, 1) // no job has come
}

func TestFailedPilotsAreFollowedByLongerAndLongerPauses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(1, nil)
	var pauses []int
	last := s.now
	for range 400 {
		before := s.started
		s.now = s.now.Add(time.Second)
		if err := s.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.started > before {
			pauses = append(pauses, int(s.now.Sub(last).Seconds()))
			last = s.now
			s.pilots[len(s.pilots)-1].Phase = pilot.Ended // at once
		}
	}
	if len(pauses) < 6 || len(pauses) > 14 || pauses[len(pauses)-1] < 60 || pauses[2] > 10 {
		t.Errorf("pauses %v", pauses)
	}
}

func TestRefusedSubmissionsAreFollowedByPausesAndCounted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(5, nil)
	s.MostFailed = 1
	s.startErr = errors.New("Invalid account")
	s.pass(0, 1) // and no second one
	s.pass(500*time.Millisecond, 0)
	s.pass(time.Second, 1)
	s.now = s.now.Add(time.Minute)
	if err := s.Pass(t.Context()); !errors.Is(err, pilot.ErrTooManyFailed) {
		t.Error(err)
	}
}

func TestCancelledPilotIsNoFailure(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.MostFailed, s.Min = 0, 1
	s.pass(0, 1)
	s.pilots[0].Phase, s.pilots[0].Cancelled = pilot.Ended, true
	s.pass(10*time.Second, 1)
}

func TestSpacingHoldsBetweenPasses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Spacing = time.Minute
	s.stage(2, nil)
	s.pass(0, 2)
	s.stage(3, nil)
	s.pass(30*time.Second, 0)
	s.pass(30*time.Second, 1)
}

func TestPilotThatNeverReachesTheServerStopsCountingAsComing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(1, nil)
	s.pass(0, 1)
	s.pilots[0].Phase, s.pilots[0].Since = pilot.Active, s.now
	s.pass(4*time.Minute, 0)
	s.pass(2*time.Minute, 1)
}

func TestBundleThatIsLeftOutIsNamedOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(1, codalab.Metadata{"request_cpus": 8.0})
	s.pass(0, 0)
	s.pass(10*time.Second, 0)
	s.logged("it asks for 8 CPUs, and these workers have 1", 1)
	s.NoFilter = true
	s.pass(10*time.Second, 1)
}

func TestSurveySaysWhatPilotsDoAndWhatNoneCanTake(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(2, nil)
	s.pass(0, 2)
	s.pilots[0].Phase = pilot.Active
	s.checkIn(true, 0)
	s.stage(1, codalab.Metadata{"request_cpus": 8.0, "name": "big"})
	got, err := s.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Pilots) != 2 || got.Pilots[0].Worker == nil || got.Pilots[1].Worker != nil || got.Pilots[0].WorkerID != "host-"+s.pilots[0].Name {
		t.Errorf("%+v", got.Pilots)
	}
	if got.Staged != 1 || len(got.Misfits) != 1 || got.Misfits[0].Name != "big" || !strings.Contains(got.Misfits[0].Reason, "8 CPUs") {
		t.Errorf("%+v", got)
	}
}

func TestRunWaitsForAnOutageAndSaysItOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.Now = time.Now
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		s.serverErr = &codalab.Error{Method: "GET", Path: "/bundles", Status: 502, Message: "Bad Gateway"}
		s.serverBack = time.Now().Add(10 * time.Second)
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		s.logged("waiting for an answer", 1)
		s.logged("server and batch system answer again", 1)
		s.logged("ended: workers go on", 1)
	})
}

func TestRunAsksAServiceThatDoesNotAnswerLessAndLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.Now, s.refresh = time.Now, 20*time.Second
		s.backendErr = &codalab.Error{Status: 503}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		if most := 3600/20 + 10; s.looks > most || s.looks < most/2 {
			t.Errorf("%d looks at the backend in an hour, want at most %d", s.looks, most)
		}
	})
}

func TestRunEndsWhereTheLoginOrTheFirstRequestIsRefused(t *testing.T) {
	t.Parallel()
	for _, err := range []error{client.ErrCredentials, &codalab.Error{Status: 401}, &codalab.Error{Status: 400, Message: "no such key"}} {
		s := newSite(t)
		s.serverErr = err
		if got := s.Run(t.Context()); !errors.Is(got, err) {
			t.Errorf("%v, want %v", got, err)
		}
	}
}

func TestLastLinesOfAFailedPilotAreLogged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stage(1, nil)
	s.pass(0, 1)
	s.pilots[0].Phase = pilot.Ended
	s.pass(10*time.Second, 0)
	s.logged(`never reached the server`, 1)
	s.logged(`last line of `+s.pilots[0].Name, 1)
}

func TestSecondManagerOfTheSameNameIsNoticed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.pilots = []pilot.Pilot{{Name: s.NewName(), Phase: pilot.Active}}
	s.pass(0, 0)
	s.logged("if a second manager has the same name", 0)
	s.pilots = append(s.pilots, pilot.Pilot{Name: s.NewName(), Phase: pilot.Pending})
	s.pass(10*time.Second, 0)
	s.pass(10*time.Second, 0)
	s.logged("if a second manager has the same name", 1)
}

func TestTidyThatFailsIsLoggedOnceAndRetried(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.tidyErr = errors.New("no answer")
	s.pass(0, 0)
	s.pass(10*time.Second, 0)
	s.logged("the remains of ended workers were not all removed", 1)
	s.tidyErr = nil
	s.pass(10*time.Second, 0)
	s.logged("the remains of ended workers are removed again", 1)
}
