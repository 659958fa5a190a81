package pilot_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// site is a server and a batch system with the answers of a test, and a manager between them.
type site struct {
	*pilot.Manager
	t        *testing.T
	now      time.Time
	log      strings.Builder
	staged   []client.BundleInfo
	workers  []codalab.WorkerInfo
	keywords [][]string
	// serverErr and backendErr are the errors of the next calls.
	serverErr, backendErr, startErr error
	tidyErr                         error
	stopped                         []string
	serverBack                      time.Time // the end of serverErr; zero for never
	pilots                          []pilot.Pilot
	othersPending, othersActive     int // the workers of others
	started, looks, tidied          int
	refresh                         time.Duration // the backend's; 0 means 5 s
	tokens                          tokens
	beforeStart, duringLook         func()
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, now: time.Unix(1_800_000_000, 0)}
	s.Manager = &pilot.Manager{
		Server: s, Backend: s, Shape: pilot.Shape{CPUs: 1, Memory: 2 * gib}, Max: 10, MostFailed: -1, Pause: time.Second,
		Log: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now: func() time.Time { return s.now },
	}
	return s
}

func (s *site) SearchBundles(_ context.Context, _ string, keywords []string) ([]client.BundleInfo, json.RawMessage, error) {
	s.keywords = append(s.keywords, keywords)
	if !s.serverBack.IsZero() && !s.Now().Before(s.serverBack) {
		s.serverErr = nil
	}
	return s.staged, nil, s.serverErr
}

func (s *site) Workers(context.Context) ([]codalab.WorkerInfo, error) { return s.workers, s.serverErr }

func (s *site) Bundle(_ context.Context, uuid string, _ ...string) (client.BundleInfo, error) {
	return client.BundleInfo{Bundle: codalab.Bundle{UUID: uuid, Metadata: codalab.Metadata{"request_memory": "1g"}}}, nil
}

func (s *site) NewName() string { return fmt.Sprintf("ann-worker-%032x", len(s.pilots)) }

func (s *site) Refresh() time.Duration { return cmp.Or(s.refresh, 5*time.Second) }

func (s *site) Start(_ context.Context, name, token string) (pilot.Pilot, error) {
	s.started++
	if s.beforeStart != nil {
		s.beforeStart()
	}
	s.tokens.passed = append(s.tokens.passed, token)
	p := pilot.Pilot{Name: name, Phase: pilot.Pending, Job: fmt.Sprint(s.started), Since: s.now}
	if s.startErr != nil {
		return pilot.Pilot{}, s.startErr
	}
	s.pilots = append(s.pilots, p)
	return p, nil
}

func (s *site) Pilots(context.Context) ([]pilot.Pilot, error) {
	s.looks++
	if s.duringLook != nil {
		s.duringLook()
	}
	return slices.Clone(s.pilots), s.backendErr
}

func (s *site) Others() (pending, active int) { return s.othersPending, s.othersActive }

func (s *site) Tidy(context.Context, pilot.NewToken) error {
	s.tidied++
	return s.tidyErr
}

// Stop ends a pilot at the next answer.
func (s *site) Stop(_ context.Context, p pilot.Pilot) error {
	for i := range s.pilots {
		if s.pilots[i].Name == p.Name {
			s.pilots[i].Phase = pilot.Ended
			s.stopped = append(s.stopped, p.Name)
		}
	}
	return nil
}

func (s *site) Logged(context.Context) ([]pilot.Pilot, error) { return s.pilots, nil }

func (s *site) WriteLog(_ context.Context, w io.Writer, p pilot.Pilot, _ bool) error {
	_, err := fmt.Fprintf(w, "first line of %[1]s\nlast line of %[1]s\n", p.Name)
	return err
}

// stage makes the server show n staged bundles.
func (s *site) stage(n int, metadata codalab.Metadata) {
	s.staged = nil
	for i := range n {
		m := codalab.Metadata{"request_cpus": 1.0, "request_memory": "2g"}
		for key, value := range metadata {
			m[key] = value
		}
		b := codalab.Bundle{UUID: fmt.Sprintf("0x%032x", i), Type: codalab.TypeRun, State: codalab.StateStaged, Metadata: m}
		s.staged = append(s.staged, client.BundleInfo{Bundle: b})
	}
}

// checkIn makes the server know pilots, with a run each if runs is set.
func (s *site) checkIn(runs bool, pilots ...int) {
	for _, i := range pilots {
		w := codalab.WorkerInfo{WorkerID: pilot.WorkerID(s.pilots[i].Name), CPUs: 1, MemoryBytes: 2 * gib, ExitAfterNumRuns: codalab.UnlimitedRuns}
		if runs {
			w.CPUsInUse, w.RunUUIDs = 1, []string{fmt.Sprintf("0x%032x", 1000+i)}
		}
		s.workers = append(s.workers, w)
	}
}

// pass lets time pass and makes a pass, which must start so many pilots.
func (s *site) pass(after time.Duration, want int) {
	s.t.Helper()
	s.now = s.now.Add(after)
	before := s.started
	if err := s.Pass(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	if s.started-before != want {
		s.t.Fatalf("%d were started, want %d; the log: %s", s.started-before, want, s.log.String())
	}
}

func (s *site) logged(text string, times int) {
	s.t.Helper()
	if n := strings.Count(s.log.String(), text); n != times {
		s.t.Errorf("%q is logged %d times, want %d: %s", text, n, times, s.log.String())
	}
}

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
	s.pilots[0].Phase = pilot.Active
	s.checkIn(true, 0)
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
