package store_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// openOld makes the database that a server from before migration 00016 leaves, with these users.
func openOld(t *testing.T, at place, users ...string) {
	t.Helper()
	must(t, os.MkdirAll(at.dir, 0o700))
	old := fstest.MapFS{}
	files, err := filepath.Glob("migrations/*.sql")
	must(t, err)
	for _, name := range files {
		if base := filepath.Base(name); base < "00016" {
			data, err := os.ReadFile(name)
			must(t, err)
			old[base] = &fstest.MapFile{Data: data}
		}
	}
	where := at.url
	if where == "" {
		where = filepath.Join(at.dir, "codalab.db")
	}
	db, err := sqldb.Open(t.Context(), where, fs.FS(old))
	must(t, err)
	for _, name := range users {
		_, err := db.ExecContext(t.Context(), db.Rebind(`
			INSERT INTO users (id, name, password, joined, time_quota, disk_quota, parallel_run_quota) VALUES (?, ?, '', 0, 0, 0, 0)`), "0x"+name, name)
		must(t, err)
	}
	must(t, db.Close())
}

func TestNewDataIsPrivateAndOldDataGoesOnAsPublic(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		defaultOf := func(want store.DefaultPermission, wantChosen bool) {
			t.Helper()
			s, err := store.OpenDatabase(t.Context(), at.dir, at.url)
			must(t, err)
			got, chosen, err := s.DefaultPermission(t.Context())
			if err != nil || got != want || chosen != wantChosen {
				t.Errorf("%s, chosen: %t, %v; want %s, %t", got, chosen, err, want, wantChosen)
			}
			must(t, s.Close())
		}
		openOld(t, at, "ann")
		defaultOf(store.DefaultPublic, false)
		s, err := store.OpenDatabase(t.Context(), at.dir, at.url)
		must(t, err)
		must(t, s.SetDefaultPermission(t.Context(), store.DefaultPublic))
		must(t, s.SetDefaultPermission(t.Context(), store.DefaultGroup))
		must(t, s.Close())
		defaultOf(store.DefaultGroup, true)
	})
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		if got, chosen, err := s.DefaultPermission(t.Context()); err != nil || got != store.DefaultNone || !chosen {
			t.Errorf("new data: %s, %t, %v", got, chosen, err)
		}
	})
	if _, err := store.ParseDefaultPermission("all"); err == nil {
		t.Error("all is taken for a default permission")
	}
}
