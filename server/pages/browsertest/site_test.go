package browsertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/cltest"
)

// source is the way from the tests to the project.
const source = "../../.."

var (
	serverProgram = testenv.Program{Module: source, Package: "./cmd/cl-server"}
	clProgram     = testenv.Program{Module: source, Package: "./cmd/cl"}
)

func TestMain(m *testing.M) {
	testenv.Parallel(2) // a page takes a core while Chromium draws it
	code := m.Run()
	theChromium.stop()
	serverProgram.Remove()
	clProgram.Remove()
	os.Exit(code)
}

// password is that of all users.
const password = "correct horse battery"

// plainHost is a host name of this machine that Chromium trusts no more than any other site without TLS.
const plainHost = "codalab.test"

// site is a cl-server with users.
type site struct {
	t       *testing.T
	dir     string
	address string
}

// newSite starts a server with these users; the first one is root if the name is root.
func newSite(t *testing.T, users ...string) *site {
	t.Helper()
	return newSiteWith(t, nil, users...)
}

// newSiteWith is newSite with flags for the server.
func newSiteWith(t *testing.T, flags []string, users ...string) *site {
	t.Helper()
	theChromium.start(t)
	s := &site{t: t, dir: t.TempDir()}
	data := filepath.Join(s.dir, "server")
	for _, name := range users {
		args := []string{"user", "add", "--data", data, name}
		if name == "root" {
			args = append(args, "--root")
		}
		add := exec.CommandContext(t.Context(), serverProgram.Path(t), args...)
		add.Stdin = strings.NewReader(password + "\n")
		if said, err := add.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", add, err, said)
		}
	}
	run := exec.CommandContext(context.Background(), serverProgram.Path(t), append([]string{"run", "--data", data, "--listen", "127.0.0.1:0", "--log-format", "json"}, flags...)...)
	server := testenv.StartLogging(t, run, password)
	s.address = fmt.Sprint(server.AwaitLine(t, "serving", "")["address"])
	return s
}

// startWorker starts a worker that runs ann's bundles, and tells what they use.
func (s *site) startWorker() {
	s.t.Helper()
	dir := filepath.Join(s.dir, "worker")
	testenv.Must(s.t, os.MkdirAll(dir, 0o700))
	call := cltest.WorkerCall{Address: s.address, User: cltest.User{Name: "ann", Password: password}, ID: "desk", Dir: dir, Measures: true}
	w, err := cltest.StartShellWorker(context.Background(), call)
	testenv.Must(s.t, err)
	s.t.Cleanup(func() { testenv.Must(s.t, w.Stop()) })
}

// cl runs cl as a user, and returns its output without the last newline.
func (s *site) cl(user string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), clProgram.Path(s.t), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "CL_SERVER="+s.address, "CODALAB_USERNAME="+user, "CODALAB_PASSWORD="+password, "CODALAB_HOME="+filepath.Join(s.dir, "home-"+user))
	var errors strings.Builder
	cmd.Stderr = &errors
	said, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%s: %v: %s", cmd, err, errors.String())
	}
	return strings.TrimSuffix(string(said), "\n")
}

// home is the uuid of a user's own worksheet.
func (s *site) home(user string) string {
	s.t.Helper()
	return regexp.MustCompile(`0x[0-9a-f]{32}`).FindString(s.cl(user, "work"))
}

// worksheet is the uuid of a worksheet of ann's.
func (s *site) worksheet(name string) string {
	s.t.Helper()
	return s.cl("ann", "wsearch", "name="+name, "--uuid-only")
}

// write writes a file for cl to upload, and returns its name.
func (s *site) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	testenv.Must(s.t, os.MkdirAll(filepath.Dir(path), 0o700))
	testenv.Must(s.t, os.WriteFile(path, []byte(text), 0o600))
	return name
}
