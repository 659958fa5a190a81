package testenv

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Server is a PostgreSQL server of one test's own, which may be ended at will.
type Server struct {
	// URL is that of its one database.
	URL string

	dir  string
	cred *syscall.Credential
	run  *exec.Cmd
}

// programs is where Debian's package has PostgreSQL's programs.
const programs = "/usr/lib/postgresql/15/bin"

// PostgresServer makes a server and starts it; it ends with the test. It takes
// root, and about a second.
func PostgresServer(tb testing.TB) *Server {
	tb.Helper()
	need(tb, postgres, nil)
	s := &Server{}
	var err error
	s.cred, err = credential("postgres")
	need(tb, postgres, err)
	s.dir, err = os.MkdirTemp(sharedParent(tb), "postgres-") //nolint:usetesting // the server's user may not look into TempDir
	must(tb, err)
	tb.Cleanup(func() { must(tb, os.RemoveAll(s.dir)) })
	must(tb, os.Chown(s.dir, int(s.cred.Uid), int(s.cred.Gid)))
	made := s.command("initdb", "--pgdata", s.dir, "--username=postgres", "--auth=trust", "--no-sync")
	if out, err := made.CombinedOutput(); err != nil {
		need(tb, postgres, fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out)))
	}
	s.URL = "postgres:///postgres?" + url.Values{"host": {s.dir}, "port": {"16820"}, "user": {"postgres"}}.Encode()
	s.start(tb)
	tb.Cleanup(func() { s.crash(tb) })
	return s
}

// Restart ends the server without any warning, as a crash does, and starts it
// again. It returns when the server answers.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.crash(tb)
	s.start(tb)
}

func (s *Server) start(tb testing.TB) {
	tb.Helper()
	s.run = s.command("postgres", "-D", s.dir, "-k", s.dir, "-p", "16820", "-c", "listen_addresses=", "-c", "logging_collector=off")
	must(tb, s.run.Start())
	db, err := sql.Open("postgres", s.URL)
	must(tb, err)
	deadline := time.Now().Add(30 * time.Second)
	for {
		if err = db.PingContext(tb.Context()); err == nil || time.Now().After(deadline) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	must(tb, errors.Join(err, db.Close()))
}

// crash ends the server and its helpers at once; it writes nothing more, and
// has to recover from its log when it is started again.
func (s *Server) crash(tb testing.TB) {
	tb.Helper()
	must(tb, s.run.Process.Signal(syscall.SIGQUIT))
	_ = s.run.Wait() // it says that it was ended
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(programs, name), args...) //nolint:gosec,noctx // crash ends it
	cmd.Dir, cmd.Env = s.dir, []string{"LANG=C.UTF-8", "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	return cmd
}

// credential starts programs as a user of this machine.
func credential(name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a test starts a server only when root runs it")
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("who is %s: %w", name, err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 31)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 31)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(uidErr, gidErr)
}
