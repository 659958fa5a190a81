package checkin

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
	"github.com/cl-slurm/cl-slurm/server/usage"
)

// service is CheckIns with one run of alice in a state on her worker.
func service(tb testing.TB, state codalab.State) (*CheckIns, store.Bundle, plan.Worker) {
	tb.Helper()
	data, err := store.Open(tb.Context(), tb.TempDir())
	must(tb, err)
	tb.Cleanup(func() { must(tb, data.Close()) })
	alice, worker := store.User{ID: "0x" + strings.Repeat("a", 32), Name: "alice"}, plan.Worker{User: "0x" + strings.Repeat("a", 32), ID: "w"}
	run := store.Bundle{UUID: "0x" + strings.Repeat("1", 32), Type: codalab.TypeRun, OwnerID: alice.ID, State: state, Metadata: codalab.Metadata{}}
	must(tb, errors.Join(data.AddUser(tb.Context(), alice), data.CreateBundle(tb.Context(), run, "")))
	run, err = data.Change(tb.Context(), run.UUID, assign(worker))
	must(tb, err)
	s := New(Config{
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Store: data, Hub: hub.New(time.Minute, time.Now()), Usage: usage.NewKeeper(data, slog.New(slog.DiscardHandler)), Changed: func(...string) {},
	})
	s.track(run)
	return s, run, worker
}

// assign gives a run to a worker.
func assign(to plan.Worker) func(*store.Bundle) error {
	return func(b *store.Bundle) error {
		b.Worker = store.Worker(to)
		return nil
	}
}

// track tells the hub of a bundle, as the scheduler does.
func (s *CheckIns) track(b store.Bundle) {
	s.config.Hub.Track([]plan.Bundle{stored.Plan(b)}, s.config.Site.Resources)
}

// A worker that got no answer reports a run again that has ended.
func TestEndOfARunIsAcknowledgedAgain(t *testing.T) {
	t.Parallel()
	s, run, worker := service(t, codalab.StateRunning)
	c, _, err := s.config.Hub.BeginCheckIn(worker, hub.Arrival{CheckIn: codalab.CheckIn{}}, time.Now())
	must(t, err)
	report := func(state codalab.State) int {
		t.Helper()
		messages, err := s.applyReports(t.Context(), c, []codalab.RunReport{{UUID: run.UUID, State: state}}, false)
		must(t, err)
		run, err = s.config.Store.Bundle(t.Context(), run.UUID)
		must(t, err)
		s.track(run)
		return len(messages)
	}
	if n := report(codalab.StateRunning); n != 0 {
		t.Errorf("%d messages", n)
	}
	for range 2 {
		if n := report(codalab.StateFinalizing); n != 1 || !run.State.Final() {
			t.Errorf("%d acknowledgements of a bundle that is %s", n, run.State)
		}
	}
}

func TestReportThatIsOvertakenIsNotApplied(t *testing.T) {
	t.Parallel()
	s, run, worker := service(t, codalab.StatePreparing)
	earlier, _, err := s.config.Hub.BeginCheckIn(worker, hub.Arrival{CheckIn: codalab.CheckIn{}}, time.Now())
	must(t, err)
	later, _, err := s.config.Hub.BeginCheckIn(worker, hub.Arrival{CheckIn: codalab.CheckIn{}}, time.Now())
	must(t, err)
	for _, c := range []*hub.CheckIn{later, earlier} {
		state := map[*hub.CheckIn]codalab.State{later: codalab.StateRunning, earlier: codalab.StatePreparing}[c]
		_, err := s.applyReports(t.Context(), c, []codalab.RunReport{{UUID: run.UUID, State: state}}, false)
		must(t, err)
	}
	if b, err := s.config.Store.Bundle(t.Context(), run.UUID); err != nil || b.State != codalab.StateRunning {
		t.Errorf("%s, %v", b.State, err)
	}
}

// The hub sends no write message again.
func TestFailingStoreDoesNotLoseAWrite(t *testing.T) {
	t.Parallel()
	s, run, worker := service(t, codalab.StateRunning)
	starting := run
	starting.UUID, starting.State = "0x"+strings.Repeat("2", 32), codalab.StateStarting
	s.track(starting)
	c, _, err := s.config.Hub.BeginCheckIn(worker, hub.Arrival{CheckIn: codalab.CheckIn{}}, time.Now())
	must(t, err)
	told := make(chan error, 1)
	go func() {
		told <- s.config.Hub.Tell(t.Context(), worker, codalab.Message{Type: codalab.MessageWrite, UUID: run.UUID}, time.Now)
	}()
	if again, err := c.Wait(t.Context(), nil); !again || err != nil {
		t.Fatalf("no message: %v", err)
	}
	must(t, s.config.Store.Close())
	messages, err := s.messages(t.Context(), c)
	if err != nil || len(messages) != 1 || messages[0].Type != codalab.MessageWrite {
		t.Errorf("%+v, %v", messages, err)
	}
	must(t, testenv.Receive(t, "the write is in an answer", told))
}

var must = testenv.Must
