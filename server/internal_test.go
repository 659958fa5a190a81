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
	"github.com/cl-slurm/cl-slurm/server/store"
)

// A worker that got no answer reports a run again that has ended.
func TestServerRemembersNoReportOfARunThatHasEnded(t *testing.T) {
	t.Parallel()
	data, err := store.Open(t.Context(), t.TempDir())
	must(t, err)
	defer func() { _ = data.Close() }() // the test is over
	user := store.User{ID: "0x" + strings.Repeat("a", 32), Name: "alice"}
	must(t, data.AddUser(t.Context(), user))
	worker := store.Worker{User: user.ID, ID: "w"}
	ended := store.Bundle{
		UUID: "0x" + strings.Repeat("1", 32), Type: codalab.TypeRun, State: codalab.StateReady, OwnerID: user.ID,
		Metadata: codalab.Metadata{},
	}
	must(t, data.CreateBundle(t.Context(), ended, ""))
	_, err = data.Change(t.Context(), ended.UUID, func(b *store.Bundle) error {
		b.Worker = worker
		return nil
	})
	must(t, err)
	s := New(Config{Store: data, Now: time.Now, HashIterations: 1})
	p, _ := s.hub.beginPoll(worker, codalab.CheckIn{}, time.Now())
	messages, err := s.applyReports(t.Context(), p, []codalab.Run{{UUID: ended.UUID, State: codalab.StateFinalizing}})
	if err != nil || len(messages) != 1 {
		t.Errorf("told %v, %v; want one acknowledgement", messages, err)
	}
	if len(p.worker.applied) > 0 {
		t.Errorf("remembers the reports of %v", p.worker.applied)
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
