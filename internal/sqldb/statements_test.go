package sqldb

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jmoiron/sqlx"
)

// openKept opens a new SQLite file with one connection.
func openKept(t *testing.T) *DB {
	t.Helper()
	step := "-- +goose Up\nCREATE TABLE n (id BIGINT PRIMARY KEY, v BIGINT NOT NULL);\n"
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "n.db"), fstest.MapFS{"00001_step.sql": {Data: []byte(step)}})
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// keptTexts returns the texts of the statements that the connection keeps.
func keptTexts(t *testing.T, db *DB) (texts []string) {
	t.Helper()
	c, err := db.Conn(t.Context())
	if err == nil {
		err = c.Raw(func(c any) error {
			for _, s := range c.(*keepingConn).kept { //nolint:forcetypeassert // a test
				texts = append(texts, s.text)
			}
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return texts
}

func mustExec(t *testing.T, db *DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatal(err)
	}
}

func mustGet(t *testing.T, db *DB, want int, text string, args ...any) {
	t.Helper()
	var got int
	if err := db.GetContext(t.Context(), &got, text, args...); err != nil || got != want {
		t.Errorf("%s: %d, %v; want %d", text, got, err, want)
	}
}

func TestStatementIsCompiledOnce(t *testing.T) {
	t.Parallel()
	db := openKept(t)
	const insert, read = "INSERT INTO n VALUES (?, ?)", "SELECT v FROM n WHERE id = ?"
	for id := range 3 {
		mustExec(t, db, insert, id, 10*id)
		mustGet(t, db, 10*id, read, id)
	}
	kept := keptTexts(t, db)
	for _, text := range []string{insert, read} {
		if n := len(slices.DeleteFunc(slices.Clone(kept), func(s string) bool { return s != text })); n != 1 {
			t.Errorf("%q is kept %d times", text, n)
		}
	}
}

// Rows that are being read use their statement.
func TestStatementInUseIsCompiledAgain(t *testing.T) {
	t.Parallel()
	db := openKept(t)
	mustExec(t, db, "INSERT INTO n VALUES (1, 10), (2, 20)")
	const read = "SELECT v FROM n WHERE id >= ? ORDER BY id"
	var seen []string
	err := db.InTx(t.Context(), func(tx *sqlx.Tx) error {
		outer, err := tx.QueryxContext(t.Context(), read, 1)
		if err != nil {
			return err
		}
		defer func() { _ = outer.Close() }() // only a test's
		for outer.Next() {
			var v int
			var inner []int
			if err := outer.Scan(&v); err != nil {
				return err
			}
			if err := tx.SelectContext(t.Context(), &inner, read, 2); err != nil {
				return err
			}
			seen = append(seen, fmt.Sprint(v, inner))
		}
		return outer.Err()
	})
	if want := []string{"10 [20]", "20 [20]"}; err != nil || !slices.Equal(seen, want) {
		t.Errorf("saw %q, %v; want %q", seen, err, want)
	}
}

func TestKeptStatementFollowsTheTables(t *testing.T) {
	t.Parallel()
	db := openKept(t)
	const read = "SELECT count(*) FROM n"
	mustGet(t, db, 0, read)
	mustExec(t, db, "ALTER TABLE n ADD COLUMN w BIGINT NOT NULL DEFAULT 7")
	mustExec(t, db, "INSERT INTO n (id, v) VALUES (1, 1)")
	mustGet(t, db, 1, read)
	mustExec(t, db, "DROP TABLE n")
	if err := db.GetContext(t.Context(), new(int), read); err == nil {
		t.Error("a table that was dropped can be read")
	}
	mustExec(t, db, "CREATE TABLE n (id BIGINT)")
	mustGet(t, db, 0, read)
}

func TestFailedStatementCanBeUsedAgain(t *testing.T) {
	t.Parallel()
	db := openKept(t)
	const insert = "INSERT INTO n VALUES (?, 1)"
	mustExec(t, db, insert, 1)
	if _, err := db.ExecContext(t.Context(), insert, 1); !IsUnique(err) {
		t.Errorf("the second of a key: %v", err)
	}
	mustExec(t, db, insert, 2)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.ExecContext(gone, insert, 3); err == nil {
		t.Error("a statement ran after its context had ended")
	}
	mustExec(t, db, insert, 3)
	mustGet(t, db, 3, "SELECT count(*) FROM n")
}

func TestKeptStatementsAreBounded(t *testing.T) {
	t.Parallel()
	db := openKept(t)
	text := func(i int) string { return fmt.Sprintf("SELECT %d", i) }
	for i := range 2 * mostKept {
		mustGet(t, db, i, text(i))
		mustGet(t, db, 0, text(0)) // used all the time
	}
	long := "SELECT 1" + strings.Repeat(" ", longestKept)
	mustGet(t, db, 1, long)
	kept := keptTexts(t, db)
	if len(kept) != mostKept || !slices.Contains(kept, text(0)) || slices.Contains(kept, text(1)) || slices.Contains(kept, long) {
		t.Errorf("kept are %d: %q", len(kept), kept)
	}
}

func TestPragmaIsNotKept(t *testing.T) {
	t.Parallel()
	db := openKept(t)
	mustExec(t, db, "PRAGMA incremental_vacuum(1)")
	for _, text := range keptTexts(t, db) {
		if strings.Contains(text, "PRAGMA") {
			t.Errorf("%q is kept", text)
		}
	}
}
