package server

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// service is a server that does not run, with one run of alice, and her worker.
func service(t *testing.T, run store.Bundle) (*Server, store.Bundle, plan.Worker) {
	t.Helper()
	data, err := store.Open(t.Context(), t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, data.Close()) })
	alice := store.User{ID: "0x" + strings.Repeat("a", 32), Name: "alice"}
	run.UUID, run.Type, run.OwnerID, run.Metadata = "0x"+strings.Repeat("1", 32), codalab.TypeRun, alice.ID, codalab.Metadata{}
	must(t, errors.Join(data.AddUser(t.Context(), alice), data.CreateBundle(t.Context(), run, "")))
	worker := plan.Worker{User: alice.ID, ID: "w"}
	if run.State != codalab.StateStaged {
		run, err = data.Change(t.Context(), run.UUID, func(b *store.Bundle) error {
			b.Worker = store.Worker(worker)
			return nil
		})
		must(t, err)
	}
	s := New(Config{Store: data, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	s.track(run)
	return s, run, worker
}

// A worker that got no answer reports a run again that has ended.
func TestEndOfARunIsAcknowledgedAgain(t *testing.T) {
	t.Parallel()
	s, run, worker := service(t, store.Bundle{State: codalab.StateRunning})
	p, _, err := s.hub.BeginPoll(worker, codalab.CheckIn{}, "", time.Now())
	must(t, err)
	report := func(state codalab.State) int {
		t.Helper()
		messages, err := s.applyReports(t.Context(), p, []codalab.Run{{UUID: run.UUID, State: state}}, false)
		must(t, err)
		s.processChanges(t.Context(), []string{run.UUID})
		return len(messages)
	}
	if n := report(codalab.StateRunning); n != 0 {
		t.Errorf("%d messages", n)
	}
	for range 2 {
		if n := report(codalab.StateFinalizing); n != 1 {
			t.Errorf("%d acknowledgements", n)
		}
	}
}

func TestReportThatIsOvertakenIsNotApplied(t *testing.T) {
	t.Parallel()
	s, run, worker := service(t, store.Bundle{State: codalab.StatePreparing})
	earlier, _, err := s.hub.BeginPoll(worker, codalab.CheckIn{}, "", time.Now())
	must(t, err)
	later, _, err := s.hub.BeginPoll(worker, codalab.CheckIn{}, "", time.Now())
	must(t, err)
	for _, p := range []*hub.Poll{later, earlier} {
		state := map[*hub.Poll]codalab.State{later: codalab.StateRunning, earlier: codalab.StatePreparing}[p]
		_, err := s.applyReports(t.Context(), p, []codalab.Run{{UUID: run.UUID, State: state}}, false)
		must(t, err)
	}
	if b, err := s.Store.Bundle(t.Context(), run.UUID); err != nil || b.State != codalab.StateRunning {
		t.Errorf("%s, %v", b.State, err)
	}
}

func TestRunThatIsKilledMeanwhileIsNotAssigned(t *testing.T) {
	t.Parallel()
	s, run, worker := service(t, store.Bundle{State: codalab.StateStaged})
	_, _, err := s.hub.BeginPoll(worker, codalab.CheckIn{CPUs: 4, MemoryBytes: 1 << 40, ExitAfterNumRuns: 1}, "", time.Now())
	must(t, err)
	_, err = s.Store.Change(t.Context(), run.UUID, func(b *store.Bundle) error {
		stored.Become(b, stored.Plan(*b).Kill())
		return nil
	})
	must(t, err)
	s.match(t.Context(), time.Now(), true) // it has not heard of the kill
	if b, err := s.Store.Bundle(t.Context(), run.UUID); err != nil || b.State != codalab.StateKilled {
		t.Errorf("%s, %v", b.State, err)
	}
}

func TestRunDoesNotReadABundleOfAnotherUser(t *testing.T) {
	t.Parallel()
	parents := []store.Parent{
		{UUID: "0x1", OwnerID: "0xb"}, {UUID: "0x2", OwnerID: "0xa"}, {UUID: "0x3", OwnerID: "0xb", Granted: store.PermissionRead},
	}
	for i, want := range []bool{false, true, true} {
		if got := stored.Parents(plan.Bundle{OwnerID: "0xa"}, parents)[i].Readable; got != want {
			t.Errorf("%+v: readable %v", parents[i], got)
		}
	}
}

// A full disk must not lose a run, nor keep a core busy.
func TestChangeThatCannotBeStoredIsTriedAgainAtTheNextPass(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		data, err := store.Open(t.Context(), dir)
		must(t, err)
		defer func() { must(t, data.Close()) }()
		alice := store.User{ID: "0x" + strings.Repeat("a", 32), Name: "alice"}
		run := store.Bundle{
			UUID: "0x" + strings.Repeat("1", 32), Type: codalab.TypeRun, State: codalab.StateCreated, OwnerID: alice.ID, Metadata: codalab.Metadata{},
		}
		must(t, errors.Join(data.AddUser(t.Context(), alice), data.CreateBundle(t.Context(), run, "")))
		raw, err := sql.Open("sqlite", filepath.Join(dir, "codalab.db"))
		must(t, err)
		defer func() { must(t, raw.Close()) }()
		_, err = raw.ExecContext(t.Context(), `CREATE TRIGGER full BEFORE UPDATE ON bundles BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`)
		must(t, err)
		var log bytes.Buffer
		s := New(Config{Store: data, Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- s.Run(ctx) }()
		time.Sleep(11 * time.Second) // two passes
		synctest.Wait()
		if n := strings.Count(log.String(), "the disk is full"); n != 3 {
			t.Errorf("tried %d times:\n%s", n, &log)
		}
		_, err = raw.ExecContext(t.Context(), `DROP TRIGGER full`)
		must(t, err)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if b, err := data.Bundle(t.Context(), run.UUID); err != nil || b.State != codalab.StateStaged {
			t.Errorf("%s, %v", b.State, err)
		}
		stop()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
