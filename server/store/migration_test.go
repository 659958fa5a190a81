package store_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// TestTokensOfBeforeBelongToSessions opens a database of the version before sessions.
func TestTokensOfBeforeBelongToSessions(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		all, before := os.DirFS("migrations"), fstest.MapFS{}
		files, err := fs.Glob(all, "*.sql")
		must(t, err)
		for _, name := range files {
			if name < "00013" {
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
			if err == nil {
				_, err = tx.ExecContext(t.Context(), tx.Rebind(`INSERT INTO grants (access, refresh, client, user_id, access_expires, refresh_expires) VALUES (?, ?, 'c', 'u', ?, 0)`),
					"0123456789abcdef", "r", now.UnixMicro())
			}
			return err
		}))
		must(t, db.Close())
		db, err = sqldb.Open(t.Context(), where, all)
		must(t, err)
		t.Cleanup(func() { must(t, db.Close()) })
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
