package sqldb_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

func migrations(statements ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i, s := range statements {
		name := "0000" + string(rune('1'+i)) + "_step.sql"
		fsys[name] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + s + ";\n")}
	}
	return fsys
}

const table = "CREATE TABLE n (id INTEGER PRIMARY KEY, v INTEGER NOT NULL)"

func open(t *testing.T, path string, steps ...string) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), path, migrations(steps...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestNewMigrationsApplyToAnOldDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?.db") // a name that a URL would mistake
	first := open(t, path, table)
	if _, err := first.Exec("INSERT INTO n VALUES (1, 10)"); err != nil {
		t.Fatal(err)
	}
	second := open(t, path, table, "ALTER TABLE n ADD COLUMN w INTEGER NOT NULL DEFAULT 7")
	var w int
	if err := second.Get(&w, second.Rebind("SELECT w FROM n WHERE id = ?"), 1); err != nil || w != 7 {
		t.Fatalf("w = %d, %v", w, err)
	}
}

func TestDatabaseIsItsOwnersAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	db := open(t, path, table)
	if _, err := db.Exec("INSERT INTO n VALUES (1, 10)"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + "-wal"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
}

func TestTwoProgramsOpenAndWriteAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	const writers, each = 4, 25
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			db, err := sqldb.Open(context.Background(), path, migrations(table))
			if err != nil {
				t.Error(err)
				return
			}
			for range each {
				if err := add(db); err != nil {
					t.Error(err)
				}
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var sum int
	if err := open(t, path, table).Get(&sum, "SELECT v FROM n WHERE id = 1"); err != nil || sum != writers*each {
		t.Fatalf("counted %d of %d, %v", sum, writers*each, err)
	}
}

// add reads, then writes: the transaction has to hold the lock from its start.
func add(db *sqldb.DB) error {
	return db.InTx(context.Background(), func(tx *sqlx.Tx) error {
		var v int
		if err := tx.Get(&v, "SELECT coalesce(max(v), 0) FROM n WHERE id = 1"); err != nil {
			return err
		}
		_, err := tx.Exec(tx.Rebind("INSERT INTO n VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET v = excluded.v"), v+1)
		return err
	})
}

func TestFailedTransactionLeavesNothing(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "a.db"), table)
	oops := errors.New("oops")
	err := db.InTx(t.Context(), func(tx *sqlx.Tx) error {
		if _, err := tx.Exec("INSERT INTO n VALUES (1, 1)"); err != nil {
			return err
		}
		return oops
	})
	if !errors.Is(err, oops) {
		t.Fatalf("error %v", err)
	}
	var n int
	if err := db.Get(&n, "SELECT count(*) FROM n"); err != nil || n != 0 {
		t.Fatalf("%d rows, %v", n, err)
	}
}

func TestWaitingWriterGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "a.db"), table)
	err := db.InTx(t.Context(), func(*sqlx.Tx) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return db.InTx(ctx, func(*sqlx.Tx) error { return nil })
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
}

func TestUniqueIsRecognized(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "a.db"), table)
	var err error
	for range 2 {
		_, err = db.Exec("INSERT INTO n VALUES (1, 1)")
	}
	if !sqldb.IsUnique(err) {
		t.Fatalf("error %v", err)
	}
}

func TestUnusablePathIsNamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "missing", "a.db")
	_, err := sqldb.Open(t.Context(), path, migrations(table))
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("error %v", err)
	}
}
