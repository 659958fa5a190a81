package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/jmoiron/sqlx"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func migrations(statements ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i, s := range statements {
		name := "0000" + string(rune('1'+i)) + "_step.sql"
		fsys[name] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + s + ";\n")}
	}
	return fsys
}

const table = "CREATE TABLE n (id BIGINT PRIMARY KEY, v BIGINT NOT NULL)"

// kinds makes an empty database of each kind.
var kinds = map[string]func(testing.TB) string{
	"SQLite":     file,
	"PostgreSQL": testenv.Postgres,
}

// file has a name with characters that are special in a URL.
func file(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "a b?.db")
}

// onEachKind runs a test with an empty database of each kind.
func onEachKind(t *testing.T, test func(t *testing.T, where string)) {
	t.Helper()
	for kind, place := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, place(t))
		})
	}
}

func open(t *testing.T, where string, steps ...string) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), where, migrations(steps...))
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
	onEachKind(t, func(t *testing.T, where string) {
		first := open(t, where, table)
		if _, err := first.Exec("INSERT INTO n VALUES (1, 10)"); err != nil {
			t.Fatal(err)
		}
		second := open(t, where, table, "ALTER TABLE n ADD COLUMN w BIGINT NOT NULL DEFAULT 7")
		var w int
		if err := second.Get(&w, second.Rebind("SELECT w FROM n WHERE id = ?"), 1); err != nil || w != 7 {
			t.Fatalf("w = %d, %v", w, err)
		}
		if _, err := sqldb.Open(t.Context(), where, migrations(table)); !errors.Is(err, sqldb.ErrForm) {
			t.Errorf("an older program opens a newer database: %v", err)
		}
	})
}

func TestReaderChangesNothing(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(t *testing.T, where string) {
		if _, err := sqldb.OpenToRead(t.Context(), where, migrations(table)); !errors.Is(err, sqldb.ErrAbsent) {
			t.Fatalf("nothing there: %v", err)
		}
		writer := open(t, where, table)
		err := writer.InTx(t.Context(), func(tx *sqlx.Tx) error {
			if _, err := tx.Exec("INSERT INTO n VALUES (1, 10)"); err != nil {
				return err
			}
			reader, err := sqldb.OpenToRead(t.Context(), where, migrations(table)) // beside a transaction
			if err != nil {
				return err
			}
			var n int
			if err := reader.Get(&n, "SELECT count(*) FROM n"); err != nil || n != 0 {
				t.Errorf("%d rows, %v; want none before the commit", n, err)
			}
			if _, err := reader.Exec("CREATE TABLE m (id BIGINT)"); err == nil {
				t.Error("a reader made a table")
			}
			return reader.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sqldb.OpenToRead(t.Context(), where, migrations(table, "CREATE TABLE m (id BIGINT)")); !errors.Is(err, sqldb.ErrForm) {
			t.Errorf("a newer program reads an older database: %v", err)
		}
	})
}

func TestOnlyOneProgramHoldsTheLock(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(t *testing.T, where string) {
		locked := func(want bool) {
			t.Helper()
			if got, err := sqldb.Locked(t.Context(), where); err != nil || got != want {
				t.Errorf("locked: %v, %v; want %v", got, err, want)
			}
		}
		locked(false)
		release, err := sqldb.Lock(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		locked(true)
		if _, err := sqldb.Lock(t.Context(), where); !errors.Is(err, sqldb.ErrLocked) {
			t.Errorf("second lock: %v", err)
		}
		open(t, where, table) // a lock does not prevent opening
		release()
		locked(false)
		again, err := sqldb.Lock(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		again()
	})
}

func TestOnlyItsOwnerMayReadADatabase(t *testing.T) {
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
	onEachKind(t, func(t *testing.T, where string) {
		const writers, each = 4, 25
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				db, err := sqldb.Open(context.Background(), where, migrations(table))
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
		if sum := sum(t, where); sum != writers*each {
			t.Fatalf("counted %d of %d", sum, writers*each)
		}
	})
}

// sum returns the number of committed transactions of add.
func sum(t *testing.T, where string) (sum int) {
	t.Helper()
	if err := open(t, where, table).Get(&sum, "SELECT v FROM n WHERE id = 1"); err != nil {
		t.Fatal(err)
	}
	return sum
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
	onEachKind(t, func(t *testing.T, where string) {
		db := open(t, where, table)
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
	})
}

func TestWaitingWriterEndsWithItsContext(t *testing.T) {
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

// database/sql rolls a transaction back when its context ends, and then its commit only returns that
// the transaction is done.
func TestCancelledCommitReturnsTheContextsError(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "a.db"), table)
	ctx, cancel := context.WithCancel(t.Context())
	err := db.InTx(ctx, func(tx *sqlx.Tx) error {
		cancel()
		for { // until it is rolled back
			if _, err := tx.ExecContext(t.Context(), "SELECT 1"); errors.Is(err, sql.ErrTxDone) {
				return nil
			}
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestUniqueIsRecognized(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(t *testing.T, where string) {
		db := open(t, where, table)
		var err error
		for range 2 {
			_, err = db.Exec("INSERT INTO n VALUES (1, 1)")
		}
		if !sqldb.IsUnique(err) {
			t.Fatalf("error %v", err)
		}
	})
}

func TestUnusablePathIsNamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "missing", "a.db")
	_, err := sqldb.Open(t.Context(), path, migrations(table))
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("error %v", err)
	}
}

func TestSnapshotShowsOneState(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(t *testing.T, where string) {
		db := open(t, where, table)
		for range 2 { // the second snapshot gets the connection of the first
			before := -1
			err := db.Snapshot(t.Context(), func(conn *sqlx.Conn) error {
				for range 2 {
					var sum int
					if err := conn.GetContext(t.Context(), &sum, "SELECT coalesce(max(v), 0) FROM n"); err != nil {
						return err
					}
					if before >= 0 && sum != before {
						t.Errorf("%d, then %d", before, sum)
					}
					before = sum
					if err := add(db); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := sum(t, where); got != 4 {
			t.Errorf("%d writes", got)
		}
	})
}

// Transactions that would conflict run once each.
func TestTransactionsThatTakeTurnsDoNotConflict(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(t *testing.T, where string) {
		db := open(t, where, table)
		db.TakeTurns()
		const writers, each = 4, 25
		var wg sync.WaitGroup
		calls := 0 // one transaction at a time counts
		for range writers {
			wg.Go(func() {
				for range each {
					err := db.InTx(context.Background(), func(tx *sqlx.Tx) error {
						calls++
						_, err := tx.Exec("INSERT INTO n VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET v = n.v + 1")
						return err
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if sum := sum(t, where); sum != writers*each || calls != writers*each {
			t.Errorf("%d transactions, %d calls", sum, calls)
		}
	})
}

// Each holder removes the file before it unlocks it, so the others may have opened a file that is gone.
func TestLockOfARemovedFileHoldsNothing(t *testing.T) {
	t.Parallel()
	where := filepath.Join(t.TempDir(), "a.db")
	var holders atomic.Int32
	var g errgroup.Group
	for range 4 {
		g.Go(func() error {
			for done := 0; done < 200; {
				release, err := sqldb.Lock(t.Context(), where)
				if errors.Is(err, sqldb.ErrLocked) {
					continue
				}
				if err != nil {
					return err
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				runtime.Gosched()
				holders.Add(-1)
				if err := os.Remove(where + ".lock"); err != nil {
					return err
				}
				release()
				done++
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
