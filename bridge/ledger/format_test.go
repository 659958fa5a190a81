package ledger_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// olderMigrations has the migrations of an older version.
func olderMigrations(t *testing.T) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	for _, name := range []string{"00001_rows.sql", "00002_history.sql", "00003_writer.sql"} {
		data, err := os.ReadFile("migrations/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: data}
	}
	return files
}

func TestOlderVersionRefusesTheLedgerOfANewerOne(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, place func(testing.TB) string) {
		where := place(t)
		if err := open(t, where).Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := sqldb.Open(t.Context(), where, olderMigrations(t)); err == nil || !strings.Contains(err.Error(), "a newer one") {
			t.Errorf("the version before opens the ledger: %v", err)
		}
	})
}

func TestRowOfAnotherFormatIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, place func(testing.TB) string) {
		where := place(t)
		l := open(t, where)
		save(t, l, plan.Row{Bundle: "0x1", Phase: plan.Claiming})
		db, err := sqldb.Open(t.Context(), where, os.DirFS("migrations"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = db.Exec(`UPDATE rows SET format = 1`); err == nil {
			err = db.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Rows(t.Context()); err == nil || !strings.Contains(err.Error(), "its format is 1") {
			t.Errorf("rows of format 1 were read: %v", err)
		}
	})
}
