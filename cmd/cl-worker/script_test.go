package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// researchers is cl as it is shipped.
var researchers = testenv.Program{Package: "../cl"}

// answering answers connections, inside containers.
var answering = testenv.Program{Package: "./testdata/answer"}

// The users of the scripts, and the password of all.
var scriptUsers = []string{"ann", "ben", "root"}

const scriptPassword = "correct horse"

// TestScripts plays testdata/script: real workers, with containers, for a server and a registry of the
// script's own, and the cl of its users. Everything runs as an ordinary user.
//
// In addition to testscript's own commands there are
//
//	as USER COMMAND…           a command of another user
//	pulled-once                each blob of the registry was pulled once
//	soon [!] COMMAND… ~ REGEXP a command is repeated until its output matches; with !, until it does not
//	exits CODE COMMAND…        a command that has to end with an exit code, soon
//	smalldisk DIRECTORY SIZE   mounts a small disk
//	token USER WORKER FILE SECONDS
//	                           a file of an ordinary user gets a worker token, which is in $TOKEN too
//
// and the condition terminal: that this machine can make one.
func TestScripts(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	testenv.Root(t)
	u := testenv.Researcher(t)
	worker, cl := shipped.Path(t), researchers.Path(t)
	img := scriptImage(t)
	testscript.Run(t, testscript.Params{
		Dir:         filepath.Join("testdata", "script"),
		WorkdirRoot: testenv.SharedDir(t),
		Setup: func(env *testscript.Env) error {
			env.Defer(func() { endJobs(env.WorkDir) })
			registry := imagetest.Start(t)
			pulls := &pulled{of: map[string]int{}}
			registry.Intercept = pulls.count
			env.Values[pulledKey{}] = pulls
			env.Setenv("IMAGE", registry.Push(t, "lab/tools:1", img))
			address, stop := startServer(t, filepath.Join(env.WorkDir, "server"))
			env.Defer(stop)
			bin := filepath.Join(env.WorkDir, "bin")
			must(t, os.Mkdir(bin, 0o755))
			testenv.WriteProgram(t, filepath.Join(bin, "cl-worker"), fmt.Appendf(nil,
				"#!/bin/sh\nexec setpriv --reuid=%d --regid=%d --clear-groups %s \"$@\" --fetch-private 127.0.0.1\n", u.UID, u.GID, worker))
			must(t, os.Chmod(filepath.Dir(env.WorkDir), 0o755))
			must(t, os.Chmod(env.WorkDir, 0o755))
			must(t, os.Chown(env.WorkDir, u.UID, u.GID))
			must(t, os.Symlink(cl, filepath.Join(bin, "cl")))
			env.Setenv("PATH", bin+":/usr/bin:/bin:/usr/sbin:/sbin")
			env.Setenv("SERVER", address)
			env.Setenv("CL_SERVER", address)
			env.Setenv("CODALAB_USERNAME", "ann")
			env.Setenv("CODALAB_PASSWORD", scriptPassword)
			env.Setenv("CODALAB_HOME", filepath.Join(env.WorkDir, "home-ann"))
			env.Setenv("HOME", env.WorkDir)
			host, err := os.Hostname()
			must(t, err)
			env.Setenv("HOST", host)
			old, err := filepath.Abs(filepath.Join("..", "..", "scripts", "worker.sh"))
			must(t, err)
			env.Setenv("WORKER_SH", old)
			env.Setenv("RESEARCHER", strconv.Itoa(u.UID))
			env.Setenv("METADATA", serveSpotNotice(env))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"as": asUser, "soon": soon, "smalldisk": smallDisk(t), "exits": exits, "token": workerToken(u), "pulled-once": pulledOnce},
		Condition: func(cond string) (bool, error) {
			if cond != "terminal" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
			if err != nil {
				return false, nil //nolint:nilerr // that is the answer
			}
			return true, f.Close()
		},
	})
}

// serveSpotNotice is the metadata service of an instance of EC2, and of a machine of Azure. Their notices are the files
// "notice" and "scheduled" of the script.
func serveSpotNotice(env *testscript.Env) (address string) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metadata/instance/compute/name":
			_, _ = w.Write([]byte("tvmps_0"))
			return
		case "/metadata/scheduledevents":
			events, err := os.ReadFile(filepath.Join(env.WorkDir, "scheduled"))
			if err != nil {
				events = []byte(`{"DocumentIncarnation":1,"Events":[]}`)
			}
			_, _ = w.Write(events)
			return
		}
		notice, err := os.ReadFile(filepath.Join(env.WorkDir, "notice"))
		if err != nil || r.URL.Path != "/latest/meta-data/spot/instance-action" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(notice)
	}))
	env.Defer(web.Close)
	return web.URL
}

// endJobs ends the jobs that a failed script has left: jobs outlive their worker.
func endJobs(dir string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		command, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && strings.Contains(string(command), dir) && strings.Contains(string(command), "\x00exec\x00") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// pulled counts the pulls of each blob from a script's registry.
type pulled struct {
	mu sync.Mutex
	of map[string]int
}

type pulledKey struct{}

func (p *pulled) count(_ http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.of[r.URL.Path]++
	}
	return false
}

// pulledOnce checks that each blob was pulled once.
func pulledOnce(ts *testscript.TestScript, _ bool, _ []string) {
	p, ok := ts.Value(pulledKey{}).(*pulled)
	if !ok {
		ts.Fatalf("no registry")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.of) == 0 {
		ts.Fatalf("nothing was pulled")
	}
	for path, n := range p.of {
		if n != 1 && !strings.Contains(path, "uploads") {
			ts.Fatalf("%s was pulled %d times", path, n)
		}
	}
}

// scriptImage is the image of other tests, and answer.
func scriptImage(t *testing.T) v1.Image {
	t.Helper()
	img, err := makeImage()
	must(t, err)
	program, err := os.ReadFile(answering.Path(t))
	must(t, err)
	img, err = mutate.AppendLayers(img, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Executable("bin/answer", string(program)))))
	must(t, err)
	return img
}

// startTestServer starts a CodaLab server with the users of the scripts, which ends with the test.
func startTestServer(t *testing.T, dir string) string {
	t.Helper()
	address, stop := startServer(t, dir)
	t.Cleanup(stop)
	return address
}

func startServer(t *testing.T, dir string) (address string, end func()) {
	t.Helper()
	return startChangedServer(t, dir, server.Config{Now: time.Now}, func(h http.Handler) http.Handler { return h })
}

// startChangedServer is startServer with a configuration, and with a handler in front.
func startChangedServer(t *testing.T, dir string, config server.Config, front func(http.Handler) http.Handler) (address string, end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	data, err := store.Open(ctx, dir)
	must(t, err)
	cost := server.PasswordCost{Passes: 1, KiB: 8}
	for _, name := range scriptUsers {
		u := store.User{
			ID: codalab.NewUUID(), Name: name, Password: server.HashPassword(scriptPassword, cost), Joined: store.Time{Time: time.Now()},
			TimeQuota: 1 << 40, DiskQuota: 1 << 40, ParallelRunQuota: 100,
		}
		if name == "root" {
			u.ID = store.RootID
		}
		must(t, data.AddUser(ctx, u))
	}
	config.Store, config.PasswordCost = data, cost
	s := server.New(config)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	web := httptest.NewServer(front(s.Handler()))
	return web.URL, func() {
		stop()
		web.CloseClientConnections()
		web.Close()
		<-done
		if err := data.Close(); err != nil {
			t.Error(err)
		}
	}
}

func asUser(ts *testscript.TestScript, neg bool, args []string) {
	name, home := ts.Getenv("CODALAB_USERNAME"), ts.Getenv("CODALAB_HOME")
	ts.Setenv("CODALAB_USERNAME", args[0])
	ts.Setenv("CODALAB_HOME", ts.MkAbs("home-"+args[0]))
	err := ts.Exec(args[1], args[2:]...)
	ts.Setenv("CODALAB_USERNAME", name)
	ts.Setenv("CODALAB_HOME", home)
	if (err != nil) != neg {
		ts.Fatalf("%v", err)
	}
}

func soon(ts *testscript.TestScript, _ bool, args []string) {
	want := true
	if args[0] == "!" {
		want, args = false, args[1:]
	}
	pattern := regexp.MustCompile("(?m)" + args[len(args)-1])
	args = args[:len(args)-2]
	said := ""
	if testenv.Poll(func() bool {
		err := ts.Exec(args[0], args[1:]...)
		said = ts.ReadFile("stdout") + ts.ReadFile("stderr")
		return pattern.MatchString(said) == want && (err == nil || !want)
	}) {
		return
	}
	ts.Fatalf("%s: never (want %v) %s; the last time: %s", strings.Join(args, " "), want, pattern, said)
}

func smallDisk(t *testing.T) func(*testscript.TestScript, bool, []string) {
	t.Helper()
	return func(ts *testscript.TestScript, _ bool, args []string) {
		dir := ts.MkAbs(args[0])
		ts.Check(os.Mkdir(dir, 0o755))
		testenv.SmallDisk(t, dir, "mode=0777,size="+args[1])
	}
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != want {
		ts.Fatalf("%q: %v, want exit code %d", args[1:], err, want)
	}
}

// workerToken is the command token. With 0 seconds it makes a program token.
func workerToken(owner testenv.User) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		seconds, err := strconv.Atoi(args[3])
		ts.Check(err)
		api, err := client.New(ts.Getenv("SERVER"), client.Options{
			Credentials: func(context.Context) (string, string, error) { return args[0], scriptPassword, nil },
		})
		ts.Check(err)
		var token string
		if seconds > 0 {
			token, err = api.WorkerToken(context.Background(), args[1], time.Duration(seconds)*time.Second)
		} else {
			var made codalab.ProgramToken
			made, err = api.AddProgramToken(context.Background(), codalab.ProgramTokenRequest{Workers: []string{args[1]}})
			token = made.Access
		}
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(token+"\n"), 0o600))
		ts.Check(os.Chown(ts.MkAbs(args[2]), owner.UID, owner.GID))
		ts.Setenv("TOKEN", token)
	}
}
