package testenv

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// verdict records the first message with which need ends a test.
type verdict struct {
	testing.TB
	said []string
}

func (v *verdict) Helper()                  {}
func (v *verdict) Skipf(f string, a ...any) { v.said = append(v.said, "skip: "+fmt.Sprintf(f, a...)) }

func (v *verdict) Fatalf(f string, a ...any) { v.said = append(v.said, "fail: "+fmt.Sprintf(f, a...)) }

func TestMissingToolSkipsUnlessRequired(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ require, name, want string }{
		{"", slurm, "skip: needs slurm: gone"},
		{"containers,slurmx", slurm, "skip: needs slurm: gone"},
		{"containers,slurm", slurm, "fail: CLTEST_REQUIRE names slurm, which is missing: gone"},
		{"slurm", fuse, "skip: needs fuse: gone"},
		{"fuse", fuse, "fail: CLTEST_REQUIRE names fuse, which is missing: gone"},
		{"containers", fuse, "fail: CLTEST_REQUIRE names fuse, which is missing: gone"},
	} {
		v := &verdict{TB: t}
		lack(v, c.require, c.name, errors.New("gone"))
		if v.said[0] != c.want {
			t.Errorf("CLTEST_REQUIRE=%s: %s: %q, want %q", c.require, c.name, v.said[0], c.want)
		}
	}
}

func TestSharedDirIsResearchersAndGoesWithTheTest(t *testing.T) {
	t.Parallel()
	var dir string
	t.Run("a test", func(t *testing.T) {
		dir = SharedDir(t)
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != Researcher(t).UID {
			t.Errorf("%s is not researcher's", dir)
		}
	})
	if dir == "" {
		t.Skip("see above")
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestSchemaIsEveryUsersAndGoesWithTheTest(t *testing.T) {
	t.Parallel()
	count := func(t *testing.T, where string) (n int) {
		t.Helper()
		db, err := sql.Open("postgres", where)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		err = db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_namespace WHERE nspname = current_setting('search_path')").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	where := ""
	t.Run("a test", func(t *testing.T) {
		where = Postgres(t)
		if n := count(t, where); n != 1 {
			t.Errorf("%d schemas", n)
		}
	})
	if where == "" {
		t.Skip("see above")
	}
	if n := count(t, where); n != 0 {
		t.Errorf("the schema is still there")
	}
	if AsResearcher(t) {
		count(t, Postgres(t))
	}
}

func TestAsResearcherIsAnotherProcess(t *testing.T) {
	t.Parallel()
	if !AsResearcher(t) {
		return
	}
	if os.Geteuid() != Researcher(t).UID {
		t.Errorf("runs as %d", os.Geteuid())
	}
	if home := os.Getenv("HOME"); !strings.HasPrefix(home, filepath.Join(shared, "test")) {
		t.Errorf("HOME is %s", home)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv("TMPDIR"), "mine"), nil, 0o600); err != nil {
		t.Error(err)
	}
}
