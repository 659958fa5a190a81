package ledger_test

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// migrate makes a ledger with the migrations of another version: what this version has, changed by change.
func migrate(t *testing.T, where string, change func(fstest.MapFS)) {
	t.Helper()
	files := fstest.MapFS{}
	entries, err := os.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile("migrations/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = &fstest.MapFile{Data: data}
	}
	change(files)
	db, err := sqldb.Open(t.Context(), where, files)
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestLedgerOfANewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, place func(testing.TB) string) {
		where := place(t)
		migrate(t, where, func(files fstest.MapFS) {
			files["00099_more.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE more (n BIGINT NOT NULL);\n")}
		})
		if _, err := ledger.Open(t.Context(), where); err == nil || !strings.Contains(err.Error(), "a newer one") {
			t.Errorf("a ledger of a newer version was opened: %v", err)
		}
	})
}

// Builds before the first release made the tables in five steps.
func TestLedgerOfAnUnfinishedStepIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, place func(testing.TB) string) {
		where := place(t)
		migrate(t, where, func(files fstest.MapFS) {
			clear(files)
			files["00001_rows.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE rows (bundle TEXT NOT NULL PRIMARY KEY);\n")}
		})
		if _, err := ledger.Open(t.Context(), where); err == nil || !strings.Contains(err.Error(), "already exists") {
			t.Errorf("a ledger of another form was opened: %v", err)
		}
	})
}

func TestLedgerOfTheLastStepIsOpened(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, place func(testing.TB) string) {
		where := place(t)
		migrate(t, where, func(files fstest.MapFS) {
			delete(files, "00006_charges.sql") // later versions have them
			delete(files, "00007_submissions.sql")
			delete(files, "00008_packs.sql")
			for _, step := range []string{"1", "2", "3", "4"} {
				files["0000"+step+"_step.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE step" + step + " (n BIGINT NOT NULL);\n")}
			}
		})
		save(t, open(t, where), plan.Row{Bundle: "0x1", Phase: plan.Claiming})
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
