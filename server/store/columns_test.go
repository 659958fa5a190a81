package store_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// A statement that sets a column writes all of the column's indexes, and a run has a dozen changes, most of its metadata alone.
func TestChangeSetsOnlyTheColumnsThatItChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := store.Open(t.Context(), dir)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	owner := store.User{ID: "0xa", Name: "anna"}
	must(t, s.AddUser(t.Context(), owner))
	var uuids []string
	for range 2*50 - 1 { // some statements of several sizes
		b := store.Bundle{UUID: codalab.NewUUID(), Type: codalab.TypeRun, OwnerID: owner.ID, State: codalab.StateRunning, Metadata: codalab.Metadata{"name": "r", "tags": []string{"a"}}}
		must(t, s.CreateBundle(t.Context(), b, ""))
		uuids = append(uuids, b.UUID)
	}
	raw, err := sql.Open("sqlite", filepath.Join(dir, "codalab.db"))
	must(t, err)
	defer func() { must(t, raw.Close()) }()
	_, err = raw.ExecContext(t.Context(), `CREATE TRIGGER indexed BEFORE UPDATE OF owner_id, state, is_anonymous, name, data_size, entries, tags, run_time, contents,
		offered_to, worker_user ON bundles BEGIN SELECT RAISE(ABORT, 'it sets an indexed column'); END`)
	must(t, err)
	_, err = raw.ExecContext(t.Context(), `CREATE TABLE written (uuid TEXT)`)
	must(t, err)
	_, err = raw.ExecContext(t.Context(), `CREATE TRIGGER count AFTER UPDATE ON bundles BEGIN INSERT INTO written VALUES (new.uuid); END`)
	must(t, err)
	_, err = s.ChangeAll(t.Context(), uuids, func(b *store.Bundle) error {
		if b.UUID != uuids[0] {
			b.Metadata["run_status"] = "of " + b.UUID
		}
		return nil
	})
	must(t, err)
	var written int
	must(t, raw.QueryRowContext(t.Context(), `SELECT count(*) FROM written`).Scan(&written))
	if written != len(uuids)-1 {
		t.Errorf("%d rows are written for %d changes", written, len(uuids)-1)
	}
	found, err := s.Bundles(t.Context(), uuids)
	must(t, err)
	for i, uuid := range uuids {
		if got := found[uuid].Metadata.String("run_status"); (got == "of "+uuid) != (i > 0) {
			t.Errorf("bundle %d has the status %q", i, got)
		}
	}
	_, err = s.Change(t.Context(), uuids[0], func(b *store.Bundle) error {
		b.State = codalab.StateReady
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "indexed") {
		t.Errorf("a change of the state: %v", err)
	}
}
