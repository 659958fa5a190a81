package schedule

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/contents"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

var (
	alice = store.User{ID: "0x" + strings.Repeat("a", 32), Name: "alice", TimeQuota: 1 << 20, DiskQuota: 1 << 40, ParallelRunQuota: 1}
	run   = store.Bundle{UUID: "0x" + strings.Repeat("1", 32), Type: codalab.TypeRun, OwnerID: alice.ID, Metadata: codalab.Metadata{}}
)

// scheduler returns a Scheduler with alice and her run in a state. Its caller closes the store.
func scheduler(t *testing.T, dir string, state codalab.State, log io.Writer) *Scheduler {
	t.Helper()
	data, err := store.Open(t.Context(), dir)
	must(t, err)
	b := run
	b.State = state
	must(t, errors.Join(data.AddUser(t.Context(), alice), data.CreateBundle(t.Context(), b, "")))
	h, logger := hub.New(time.Minute, time.Now()), slog.New(slog.NewTextHandler(log, nil))
	return New(Config{
		Log: logger, Now: time.Now, Store: data, Hub: h, Changes: NewChanges(), Observe: func(float64) {}, Staged: func(float64) {},
		Makers: contents.New(contents.Config{Log: logger, Now: time.Now, Store: data, Hub: h}).Makers,
	})
}

func TestRunThatIsKilledBeforeItsAssignmentIsStoredStaysKilled(t *testing.T) {
	t.Parallel()
	s := scheduler(t, t.TempDir(), codalab.StateStaged, io.Discard)
	t.Cleanup(func() { must(t, s.config.Store.Close()) })
	s.processChanges(t.Context(), []string{run.UUID})
	_, _, err := s.config.Hub.BeginCheckIn(plan.Worker{User: alice.ID, ID: "w"}, hub.Arrival{CheckIn: codalab.CheckIn{CPUs: 4, MemoryBytes: 1 << 40, ExitAfterNumRuns: 1}}, time.Now())
	must(t, err)
	_, err = s.config.Store.Change(t.Context(), run.UUID, func(b *store.Bundle) error {
		stored.Become(b, stored.Plan(*b).Kill())
		return nil
	})
	must(t, err)
	s.match(t.Context(), time.Now(), true) // it has not heard of the kill
	if b, err := s.config.Store.Bundle(t.Context(), run.UUID); err != nil || b.State != codalab.StateKilled {
		t.Errorf("%s, %v", b.State, err)
	}
}

// A run may end and be deleted before the scheduler sees either. A run whose worker is away may be deleted, too.
func TestDeletedRunTakesNoRoomOfItsWorker(t *testing.T) {
	t.Parallel()
	s := scheduler(t, t.TempDir(), codalab.StateStaged, io.Discard)
	t.Cleanup(func() { must(t, s.config.Store.Close()) })
	s.processChanges(t.Context(), []string{run.UUID})
	now := time.Now()
	_, _, err := s.config.Hub.BeginCheckIn(plan.Worker{User: alice.ID, ID: "w"}, hub.Arrival{CheckIn: codalab.CheckIn{CPUs: 4, MemoryBytes: 1 << 40, ExitAfterNumRuns: 1}}, now)
	must(t, err)
	s.match(t.Context(), now, true)
	if n := s.config.Hub.Counts(now).Runs; n != 1 {
		t.Fatalf("workers have %d runs", n)
	}
	must(t, s.config.Store.DeleteBundles(t.Context(), []string{run.UUID}, store.Time{Time: now}, func(store.Bundle) error { return nil }))
	s.processChanges(t.Context(), []string{run.UUID})
	capacities, _, more := s.config.Hub.TakeCapacities(now)
	if n := s.config.Hub.Counts(now).Runs; n != 0 || !more || capacities[0].Free.CPUs != 4 || capacities[0].RunsLeft != 1 {
		t.Errorf("workers have %d runs, and room %+v", n, capacities)
	}
}

// A full disk must not lose a run, nor keep a core busy.
func TestChangeThatCannotBeStoredIsTriedAgainAtTheNextPass(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := scheduler(t, dir, codalab.StateCreated, &log)
		defer func() { must(t, s.config.Store.Close()) }()
		raw, err := sql.Open("sqlite", filepath.Join(dir, "codalab.db"))
		must(t, err)
		defer func() { must(t, raw.Close()) }()
		_, err = raw.ExecContext(t.Context(), `CREATE TRIGGER full BEFORE UPDATE ON bundles BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`)
		must(t, err)
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
		if b, err := s.config.Store.Bundle(t.Context(), run.UUID); err != nil || b.State != codalab.StateStaged {
			t.Errorf("%s, %v", b.State, err)
		}
		stop()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// The owner of a sweep bounds the number of its runs that are on workers, and changes the bound while they wait.
func TestSweepStartsAtMostItsBound(t *testing.T) {
	t.Parallel()
	s := scheduler(t, t.TempDir(), codalab.StateStaged, io.Discard)
	t.Cleanup(func() { must(t, s.config.Store.Close()) })
	sheet := store.Worksheet{UUID: "0x" + strings.Repeat("5", 32), Name: "sweep", OwnerID: alice.ID}
	must(t, errors.Join(sheet.SetTags([]string{codalab.SweepMark, "max-parallel=2"}), s.config.Store.AddWorksheets(t.Context(), store.DefaultNone, sheet)))
	uuids := []string{run.UUID} // it belongs to no sweep
	for i := range 6 {
		b := run
		b.UUID, b.State = codalab.NewUUID(), codalab.StateStaged
		b.Metadata = codalab.Metadata{"tags": codalab.SweepTags(sheet.UUID, []codalab.Setting{{Name: "i", Value: strconv.Itoa(i)}})}
		must(t, s.config.Store.CreateBundle(t.Context(), b, ""))
		uuids = append(uuids, b.UUID)
	}
	s.processChanges(t.Context(), uuids)
	_, _, err := s.config.Hub.BeginCheckIn(plan.Worker{User: alice.ID, ID: "w"}, hub.Arrival{CheckIn: codalab.CheckIn{CPUs: 64, MemoryBytes: 1 << 40, ExitAfterNumRuns: 99}}, time.Now())
	must(t, err)
	started := func() (n int, waits string) {
		t.Helper()
		s.match(t.Context(), time.Now(), true)
		found, err := s.config.Store.Bundles(t.Context(), uuids)
		must(t, err)
		for _, b := range found {
			if b.State == codalab.StateStarting {
				n++
			} else {
				waits = b.Metadata.String("staged_status")
			}
		}
		return n, waits
	}
	n, waits := started()
	if want := "2 of the sweep's runs are on workers, as many as its limit of parallel runs allows."; n != 3 || waits != want {
		t.Errorf("%d start, and others wait: %s", n, waits)
	}
	if n, _ := started(); n != 3 {
		t.Errorf("%d have started at the next pass", n)
	}
	_, err = s.config.Store.ChangeWorksheet(t.Context(), sheet.UUID, func(w *store.Worksheet) error { return w.SetTags([]string{"max-parallel=5"}) })
	must(t, err)
	if n, _ := started(); n != 6 {
		t.Errorf("%d have started with the higher bound", n)
	}
	must(t, s.config.Store.DeleteBundles(t.Context(), uuids[:2], store.Time{Time: time.Now()}, func(store.Bundle) error { return nil }))
	s.processChanges(t.Context(), uuids)
	if n, _ := started(); n != 5 {
		t.Errorf("%d are on workers when one of the sweep has gone", n)
	}
}

var must = testenv.Must
