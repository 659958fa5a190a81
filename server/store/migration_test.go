package store_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// upgraded returns a database that fill has filled when it had the migrations before a number, and that has all of them now.
func upgraded(t *testing.T, at place, number string, fill func(*sqlx.Tx) error) *sqldb.DB {
	t.Helper()
	all, before := os.DirFS("migrations"), fstest.MapFS{}
	files, err := fs.Glob(all, "*.sql")
	must(t, err)
	for _, name := range files {
		if name < number {
			text, err := fs.ReadFile(all, name)
			must(t, err)
			before[name] = &fstest.MapFile{Data: text}
		}
	}
	where := at.url
	if where == "" {
		where = filepath.Join(t.TempDir(), "codalab.db")
	}
	db, err := sqldb.Open(t.Context(), where, before)
	must(t, err)
	must(t, db.InTx(t.Context(), func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(t.Context(), `INSERT INTO users (id, name, password, joined, time_quota, disk_quota, parallel_run_quota) VALUES ('u', 'me', '', 0, 0, 0, 0)`)
		return errors.Join(err, fill(tx))
	}))
	must(t, db.Close())
	db, err = sqldb.Open(t.Context(), where, all)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// TestTokensOfBeforeBelongToSessions opens a database of the version before sessions.
func TestTokensOfBeforeBelongToSessions(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		db := upgraded(t, at, "00013", func(tx *sqlx.Tx) error {
			_, err := tx.ExecContext(t.Context(), tx.Rebind(`INSERT INTO grants (access, refresh, client, user_id, access_expires, refresh_expires) VALUES (?, ?, 'c', 'u', ?, 0)`),
				"0123456789abcdef", "r", now.UnixMicro())
			return err
		})
		var got struct {
			ID   string `db:"id"`
			Made int64  `db:"made"`
		}
		must(t, db.GetContext(t.Context(), &got, db.Rebind(`SELECT sessions.id, made FROM sessions JOIN grants ON session_id = sessions.id
			WHERE access = ? AND refresh = 'r' AND user_id = 'u' AND client = 'c'`), "0123456789abcdef"))
		if got.ID != "0123456789ab" || got.Made != now.Add(-time.Hour).UnixMicro() {
			t.Errorf("%+v", got)
		}
	})
}

// TestCodesOfBeforeGoOnToBeValid opens a database of the version in which codes were of one kind.
func TestCodesOfBeforeGoOnToBeValid(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		db := upgraded(t, at, "00028", func(tx *sqlx.Tx) error {
			_, err := tx.ExecContext(t.Context(), `INSERT INTO password_resets (user_id, code, expires) VALUES ('u', 'code', 7)`)
			return err
		})
		var expires int64
		must(t, db.GetContext(t.Context(), &expires, `SELECT expires FROM password_resets WHERE user_id = 'u' AND code = 'code' AND mailed = 0`))
		if expires != 7 {
			t.Errorf("it expires at %d", expires)
		}
	})
}
