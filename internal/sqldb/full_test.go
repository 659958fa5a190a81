package sqldb_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestFullDiskLosesNothingAndWritesContinueWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testenv.SmallDisk(t, dir, "size=2m,mode=0700")
	where := filepath.Join(dir, "n.db")
	db, err := sqldb.Open(t.Context(), where, migrations(table))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	add := func(ids ...int) error {
		return db.InTx(t.Context(), func(tx *sqlx.Tx) error {
			for _, id := range ids {
				if _, err := tx.ExecContext(t.Context(), "INSERT INTO n VALUES (?, 1)", id); err != nil {
					return err
				}
			}
			return nil
		})
	}
	filler := filepath.Join(dir, "filler")
	written := 0
	for err == nil { // until the database has used up what it had left itself
		written++
		err = add(2*written-1, 2*written)
		if written == 10 {
			if full := os.WriteFile(filler, make([]byte, 4<<20), 0o600); full == nil {
				t.Fatal("the disk is larger than it should be")
			}
		}
	}
	var later interface{ Transient() bool }
	if !errors.Is(err, sqldb.ErrFull) || !errors.As(err, &later) || !later.Transient() || !strings.Contains(err.Error(), "disk") {
		t.Errorf("on a full disk: %v", err)
	}
	count := func(want int) {
		t.Helper()
		var got int
		if err := db.GetContext(t.Context(), &got, "SELECT count(*) FROM n"); err != nil || got != want {
			t.Errorf("%d rows, %v; want %d", got, err, want)
		}
	}
	count(2 * (written - 1))
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := add(2*written-1, 2*written); err != nil {
		t.Errorf("with room again: %v", err)
	}
	count(2 * written)
}

// Linux makes a disk that fails read-only. Here the descriptors of SQLite's log become read-only, of which SQLite says the same.
func TestDiskThatTakesNoWritesIsNamedAndReadsGoOn(t *testing.T) {
	t.Parallel()
	where := filepath.Join(t.TempDir(), "n.db")
	db, err := sqldb.Open(t.Context(), where, migrations(table))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	add := func() error {
		return db.InTx(t.Context(), func(tx *sqlx.Tx) error {
			_, err := tx.ExecContext(t.Context(), "INSERT INTO n VALUES (1, 1)")
			return err
		})
	}
	readOnly, err := os.Open(where + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range open {
		fd, err := strconv.Atoi(filepath.Base(name))
		if to, gone := os.Readlink(name); gone == nil && err == nil && to == where+"-wal" && fd != int(readOnly.Fd()) {
			if err := syscall.Dup3(int(readOnly.Fd()), fd, syscall.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := add(); !errors.Is(err, sqldb.ErrDisk) {
		t.Errorf("a write on a failing disk: %v", err)
	}
	var n int
	if err := db.GetContext(t.Context(), &n, "SELECT count(*) FROM n"); err != nil || n != 0 {
		t.Errorf("%d rows, %v", n, err)
	}
}
