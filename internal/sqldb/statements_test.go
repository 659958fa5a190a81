package sqldb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jmoiron/sqlx"
)

// numbers is a database with the rows 1 to 9.
func numbers(t *testing.T) (db *DB, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "a.db")
	db, err := Open(t.Context(), path, fstest.MapFS{
		"00001_step.sql": {Data: []byte("-- +goose Up\nCREATE TABLE n (id BIGINT PRIMARY KEY);\nINSERT INTO n VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9);\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return db, path
}

func TestFewStatementsAreKept(t *testing.T) {
	t.Parallel()
	db, _ := numbers(t)
	defer db.Close()
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	kept := func() map[string]*statement {
		var kept map[string]*statement
		err := c.Raw(func(plain any) error {
			c, ok := plain.(*keepingConn)
			if ok {
				kept = c.kept
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	var first *statement
	for i := range 3 * maxStatements {
		for range 2 {
			if _, err := c.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO n VALUES (%d + ?) ON CONFLICT DO NOTHING`, i), 100); err != nil {
				t.Fatal(err)
			}
			s := kept()[fmt.Sprintf(`INSERT INTO n VALUES (%d + ?) ON CONFLICT DO NOTHING`, i)]
			if s == nil || first != nil && s != first {
				t.Fatalf("statement %d is compiled again", i)
			}
			first = s
		}
		first = nil
	}
	rows, err := c.QueryContext(t.Context(), `SELECT id FROM n`)
	if err == nil {
		err = errors.Join(rows.Close(), rows.Err()) //nolint:sqlclosecheck // which is tested
	}
	if err != nil {
		t.Fatal(err)
	}
	var n int
	long := `SELECT count(*) FROM n WHERE id IN (` + strings.Repeat(`1, `, 2000) + `1)`
	if err := c.QueryRowContext(t.Context(), long).Scan(&n); err != nil || n != 1 || kept()[long] != nil {
		t.Errorf("%d rows, %v; a long statement is kept: %t", n, err, kept()[long] != nil)
	}
	if n := len(kept()); n != maxStatements {
		t.Errorf("%d statements are kept", n)
	}
	for text, s := range kept() {
		if s.busy {
			t.Errorf("%s is not read any more, and cannot be used again", text)
		}
	}
}

func TestStatementWhoseRowsAreReadRunsBeside(t *testing.T) {
	t.Parallel()
	db, _ := numbers(t)
	defer db.Close()
	const all = `SELECT id FROM n WHERE id < ? ORDER BY id`
	err := db.InTx(t.Context(), func(tx *sqlx.Tx) error {
		rows, err := tx.QueryContext(t.Context(), all, 100)
		if err != nil {
			return err
		}
		defer rows.Close()
		var outer []int
		for rows.Next() {
			var id int
			var inner []int
			if err := rows.Scan(&id); err != nil {
				return err
			}
			if err := tx.SelectContext(t.Context(), &inner, all, id); err != nil {
				return err
			}
			if outer = append(outer, id); len(inner) != id-1 {
				t.Errorf("%d rows below %d", len(inner), id)
			}
		}
		if want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9}; !slices.Equal(outer, want) {
			t.Errorf("read %v", outer)
		}
		return rows.Err()
	})
	if err != nil {
		t.Error(err)
	}
}

func TestInterruptedStatementRunsAgain(t *testing.T) {
	t.Parallel()
	db, _ := numbers(t)
	defer db.Close()
	const slow = `WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT ?) SELECT count(*) FROM c`
	for range 8 { // on each connection
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		var n int
		go func() { ended <- db.GetContext(ctx, &n, slow, 1<<40) }()
		cancel()
		if err := <-ended; err == nil {
			t.Fatal("a statement that cannot end has ended")
		}
		if err := db.GetContext(t.Context(), &n, slow, 7); err != nil || n != 7 {
			t.Fatalf("%d, %v", n, err)
		}
	}
}

func TestClosedDatabaseLeavesNoLog(t *testing.T) {
	t.Parallel()
	db, path := numbers(t)
	var n int
	if err := db.GetContext(t.Context(), &n, `SELECT count(*) FROM n`); err != nil || n != 9 {
		t.Fatalf("%d, %v", n, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path + "-wal"); !os.IsNotExist(err) {
		t.Errorf("the log is there: %v", err)
	}
}
