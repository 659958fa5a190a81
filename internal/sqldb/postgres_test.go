package sqldb_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestBrokenCommitHappensOnce(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]testenv.Breakage{
		"before it arrived": {}, "before its answer arrived": {Arrives: true}, "and the server does not notice": {Unnoticed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := testenv.PostgresProxy(t)
			db := open(t, proxy.URL, table)
			for range 3 {
				proxy.BreakCommit(how)
				if err := add(db); err != nil {
					t.Fatal(err)
				}
				if !proxy.Broke() {
					t.Fatal("nothing broke")
				}
			}
			if sum := sum(t, proxy.URL); sum != 3 {
				t.Errorf("%d transactions happened, want 3", sum)
			}
		})
	}
}

func TestBrokenConnectionsAreMadeAgain(t *testing.T) {
	t.Parallel()
	where := testenv.Postgres(t)
	db := open(t, where, table)
	for range 5 {
		if err := add(db); err != nil {
			t.Fatal(err)
		}
		broken := false
		err := db.InTx(t.Context(), func(tx *sqlx.Tx) error {
			if !broken {
				testenv.Disconnect(t, where)
				broken = true
			}
			_, err := tx.Exec("UPDATE n SET v = v + 1")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if sum := sum(t, where); sum != 10 {
		t.Errorf("%d transactions happened, want 10", sum)
	}
}

func TestMissingServerIsReported(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	where := fmt.Sprintf("postgres://ann:secret@%s/x?sslmode=disable", l.Addr())
	_, err = sqldb.Open(t.Context(), where, migrations(table))
	if !errors.Is(err, sqldb.ErrUnavailable) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("error %v", err)
	}
	var later interface{ Transient() bool }
	if !errors.As(err, &later) || !later.Transient() {
		t.Errorf("error %v does not say that it may go away", err)
	}
}

func TestMissingSchemaIsReported(t *testing.T) {
	t.Parallel()
	where := strings.Replace(testenv.Postgres(t), "search_path=", "search_path=no_", 1)
	if _, err := sqldb.Open(t.Context(), where, migrations(table)); err == nil || !strings.Contains(err.Error(), "CREATE SCHEMA") {
		t.Errorf("error %v", err)
	}
}

func TestPasswordsAreNeverShown(t *testing.T) {
	t.Parallel()
	for _, where := range []string{
		"postgres://ann:secret@127.0.0.1:1/x?sslmode=disable",
		"postgres://ann:secret/2@127.0.0.1:1/x", // / is not escaped
		"postgres://ann:secret%2@127.0.0.1:1/x", // nor is %
		"postgres://127.0.0.1:1/x?user=ann&password=secret&sslmode=disable",
		"postgres://ann:12/secret@127.0.0.1:1/x",
		"postgres:ann:secret@127.0.0.1/x",
		"postgres:/ann:secret@127.0.0.1/x",
		"postgres://ann:secret@127.0.0.1/x?sslmode=perhaps",
	} {
		_, err := sqldb.Open(t.Context(), where, migrations(table))
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %v", where, err)
		}
		if name := sqldb.Name(where); strings.Contains(name, "secret") {
			t.Errorf("%s is shown as %s", where, name)
		}
		if !sqldb.HasPassword(where) {
			t.Errorf("%s is said to have no password", where)
		}
	}
	if _, err := os.Stat("postgres:"); err == nil {
		t.Error("a URL was taken for a path")
	}
}

func TestPasswordComesFromThePasswordFile(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(testenv.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pgpass")
	if err := os.WriteFile(file, []byte("127.0.0.1:16820:*:cltest:cltest\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	q := url.Values{"passfile": {file}, "sslmode": {"disable"}, "search_path": {u.Query().Get("search_path")}}
	where := "postgres://cltest@127.0.0.1:" + u.Query().Get("port") + "/cltest?" + q.Encode()
	open(t, where, table)
	q.Del("passfile")
	where = "postgres://cltest:wrong@127.0.0.1:" + u.Query().Get("port") + "/cltest?" + q.Encode()
	if _, err := sqldb.Open(t.Context(), where, migrations(table)); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Errorf("with a wrong password: %v", err)
	}
}

func TestCommitsAreFlushedWhateverTheURLSays(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.Postgres(t)+"&synchronous_commit=off", table)
	var setting string
	if err := db.Get(&setting, "SHOW synchronous_commit"); err != nil || setting != "on" {
		t.Errorf("synchronous_commit is %q, %v", setting, err)
	}
}
