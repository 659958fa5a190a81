package testenv

import (
	"bytes"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Server is a PostgreSQL server of one test, which the test may crash.
type Server struct {
	// URL is the address of its only database.
	URL string

	dir     string
	user    User
	process *exec.Cmd
}

// programs is the directory of PostgreSQL's programs in Debian's package.
const programs = "/usr/lib/postgresql/15/bin"

// PostgresServer starts a server, which ends with the test. It needs root, and about
// a second.
func PostgresServer(tb testing.TB) *Server {
	tb.Helper()
	need(tb, postgres, nil)
	s := &Server{}
	var err error
	s.user, err = lookUp("postgres")
	need(tb, postgres, err)
	s.dir, err = os.MkdirTemp(sharedParent(tb), "postgres-")
	Must(tb, err)
	tb.Cleanup(func() { Must(tb, os.RemoveAll(s.dir)) })
	Must(tb, os.Chown(s.dir, s.user.UID, s.user.GID))
	initdb := s.command("initdb", "--pgdata", s.dir, "--username=postgres", "--auth=trust", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		need(tb, postgres, fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out)))
	}
	s.URL = "postgres:///postgres?" + url.Values{"host": {s.dir}, "port": {"16820"}, "user": {"postgres"}}.Encode()
	s.start(tb)
	tb.Cleanup(func() { s.crash(tb) })
	return s
}

// Restart crashes the server and starts it again. It returns when the server answers.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.crash(tb)
	s.start(tb)
}

func (s *Server) start(tb testing.TB) {
	tb.Helper()
	s.process = s.command("postgres", "-D", s.dir, "-k", s.dir, "-p", "16820", "-c", "listen_addresses=", "-c", "logging_collector=off")
	Must(tb, s.process.Start())
	db, err := sql.Open("postgres", s.URL)
	Must(tb, err)
	Await(tb, "PostgreSQL answers", func() bool {
		err = db.PingContext(tb.Context())
		return err == nil
	}, &err)
	Must(tb, db.Close())
}

// crash ends the server at once. It writes nothing more, and has to recover from its
// log at the next start.
func (s *Server) crash(tb testing.TB) {
	tb.Helper()
	Must(tb, s.process.Process.Signal(syscall.SIGQUIT))
	_ = s.process.Wait() // it was killed
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(programs, name), args...)
	cmd.Dir, cmd.Env = s.dir, []string{"LANG=C.UTF-8", "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user.Credential}
	return cmd
}
