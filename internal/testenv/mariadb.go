package testenv

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
)

// MariaDB is a MariaDB server of one test. It listens only on a Unix socket.
type MariaDB struct {
	// Socket is the path of its socket. The user root has no password there.
	Socket string

	db *sql.DB
}

// StartMariaDB starts a server, which ends with the test. It takes about two seconds.
func StartMariaDB(tb testing.TB) *MariaDB {
	tb.Helper()
	need(tb, mariadb, nil)
	daemon, err := exec.LookPath("mariadbd")
	if err != nil {
		daemon = "/usr/sbin/mariadbd" // which is not in everybody's PATH
		_, err = os.Stat(daemon)
	}
	need(tb, mariadb, err)
	as := User{UID: os.Getuid(), GID: os.Getgid()}
	if os.Geteuid() == 0 {
		as, err = lookUp("mysql")
		need(tb, mariadb, err)
	}
	dir, err := os.MkdirTemp("", "mariadb-")
	Must(tb, err)
	tb.Cleanup(func() { Must(tb, os.RemoveAll(dir)) })
	Must(tb, os.Chown(dir, as.UID, as.GID))
	data := filepath.Join(dir, "data")
	m := &MariaDB{Socket: filepath.Join(dir, "socket")}
	install := as.command(dir, "mariadb-install-db", "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")
	if out, err := install.CombinedOutput(); err != nil {
		need(tb, mariadb, fmt.Errorf("mariadb-install-db: %w: %s", err, bytes.TrimSpace(out)))
	}
	server := as.command(dir, daemon, "--no-defaults", "--datadir="+data, "--socket="+m.Socket, "--pid-file="+filepath.Join(dir, "pid"),
		"--skip-networking", "--performance-schema=off", "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0")
	server.Stderr = tb.Output()
	Must(tb, server.Start())
	tb.Cleanup(func() {
		_ = server.Process.Kill() // its files go too
		_ = server.Wait()
	})
	m.db, err = sql.Open("mysql", "root@unix("+m.Socket+")/?multiStatements=true")
	Must(tb, err)
	tb.Cleanup(func() { Must(tb, m.db.Close()) })
	Await(tb, "MariaDB answers", func() bool {
		err = m.db.PingContext(tb.Context())
		return err == nil
	}, &err)
	return m
}

// command is a program of the server's user.
func (u User) command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, []string{"LANG=C.UTF-8", "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + dir}
	if u.Credential != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.Credential}
	}
	return cmd
}

// Exec runs statements, which semicolons separate.
func (m *MariaDB) Exec(tb testing.TB, statements string, args ...any) {
	tb.Helper()
	_, err := m.db.ExecContext(tb.Context(), statements, args...)
	Must(tb, err)
}

// Database makes a database with these statements, and returns its URL for root. The database is dropped
// when the test ends.
func (m *MariaDB) Database(tb testing.TB, name, statements string) string {
	tb.Helper()
	m.Exec(tb, "CREATE DATABASE "+name+" CHARACTER SET utf8; USE "+name+"; "+statements)
	tb.Cleanup(func() {
		_, err := m.db.ExecContext(context.Background(), "DROP DATABASE "+name)
		Must(tb, err)
	})
	return m.URL("root", name)
}

// URL returns the URL of a database for a user.
func (m *MariaDB) URL(user, database string) string {
	u := url.URL{Scheme: "mysql", User: url.User(user), Host: "", Path: "/" + database, RawQuery: url.Values{"unix_socket": {m.Socket}}.Encode()}
	return u.String()
}
