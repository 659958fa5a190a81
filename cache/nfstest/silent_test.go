package nfstest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// bridgeSite is a cl-bridge process whose shared directory is on a mounted disk.
type bridgeSite struct {
	t               *testing.T
	server          *Server
	program, config string
	shared          string
}

// bridgeProgram is cl-bridge.
var bridgeProgram = testenv.Program{Module: "../..", Package: "./cmd/cl-bridge"}

// newBridgeSite makes a site whose server and Slurm do not answer, so that the bridge waits for
// them.
func newBridgeSite(t *testing.T) bridgeSite {
	t.Helper()
	dir, mount := t.TempDir(), t.TempDir()
	s := bridgeSite{t, Serve(t, t.TempDir(), Options{}), bridgeProgram.Path(t), filepath.Join(dir, "bridge.toml"), filepath.Join(mount, "shared")}
	s.server.Mount(mount)
	for _, name := range []string{"sbatch", "squeue", "scancel", "sinfo", "sacct", "sacctmgr", "scontrol"} {
		testenv.WriteProgram(t, filepath.Join(dir, name), []byte("#!/bin/sh\n[ \"$1\" = --version ] && exec echo slurm 22.05.8\necho no controller >&2; exit 1\n"))
	}
	password := filepath.Join(dir, "password")
	text := fmt.Sprintf("server = \"http://127.0.0.1:1\"\nuser = \"ann\"\npassword_file = %q\nshared = %q\nledger = %q\nworker = %q\n[slurm]\nbin = %q\n[queue.cpu]\n",
		password, s.shared, filepath.Join(dir, "ledger.db"), s.program, dir)
	must(t, errors.Join(os.Mkdir(s.shared, 0o700), os.WriteFile(password, []byte("secret\n"), 0o600), os.WriteFile(s.config, []byte(text), 0o600)))
	return s
}

// stop makes the disk hang. The returned function lets it continue.
func (s bridgeSite) stop() (goOn func()) {
	s.t.Helper()
	must(s.t, s.server.cmd.Process.Signal(syscall.SIGSTOP))
	goOn = sync.OnceFunc(func() { must(s.t, s.server.cmd.Process.Signal(syscall.SIGCONT)) })
	s.t.Cleanup(goOn)
	return goOn
}

// bridgeProcess is a running bridge. Its log is read line by line.
type bridgeProcess struct {
	s     bridgeSite
	cmd   *exec.Cmd
	lines *bufio.Scanner
	log   io.Closer
}

func (s bridgeSite) start() bridgeProcess {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.program, "run", "--config", s.config)
	log, err := cmd.StderrPipe()
	must(s.t, err)
	must(s.t, cmd.Start())
	return bridgeProcess{s, cmd, bufio.NewScanner(io.TeeReader(log, s.t.Output())), log}
}

// says reads the log up to a line with these words.
func (p bridgeProcess) says(words string) {
	p.s.t.Helper()
	late := time.AfterFunc(testenv.WaitLimit, func() { _ = p.log.Close() })
	defer late.Stop()
	for p.lines.Scan() {
		if strings.Contains(p.lines.Text(), words) {
			return
		}
	}
	p.s.t.Fatalf("the bridge ended, or was silent for %s, without a line with %q", testenv.WaitLimit, words)
}

// term sends TERM.
func (p bridgeProcess) term() {
	p.s.t.Helper()
	must(p.s.t, p.cmd.Process.Signal(syscall.SIGTERM))
}

// ends waits for the end of the process.
func (p bridgeProcess) ends() {
	p.s.t.Helper()
	for p.lines.Scan() { // until the output ends
	}
	if err := p.cmd.Wait(); err != nil && p.cmd.ProcessState.ExitCode() != 130 { // a signal ended its start
		p.s.t.Errorf("the bridge ended with %v", err)
	}
}

// run runs a command of cl-bridge that ends by itself, and returns its output.
func (s bridgeSite) run(args ...string) string {
	s.t.Helper()
	return output(s.t, s.program, append(args, "--config", s.config)...)
}

// output runs a program that ends by itself, and returns its output.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("%v hangs: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestBridgeSaysThatItsDiskHangsAndCanBeStopped(t *testing.T) {
	t.Parallel()
	s := newBridgeSite(t)
	p := s.start()
	p.says("msg=started ")
	goOn := s.stop()
	p.says(`msg="the shared disk does not answer; jobs go on, and work that needs the disk waits"`)
	for command, want := range map[string]string{
		"status":              "! The shared disk does not answer: ",
		"config check --live": "failed   shared: the disk of ",
		"doctor":              "failed   shared: the disk of ",
		"run --once":          " does not answer (a call has not returned for 5s)",
		"cache ls":            " does not answer (a call has not returned for 5s)",
		"sweep":               " does not answer (a call has not returned for 5s)",
	} {
		if got := s.run(strings.Fields(command)...); !strings.Contains(got, want) {
			t.Errorf("%s says\n%swant %q", command, got, want)
		}
	}
	goOn()
	p.says(`msg="the shared disk answers again" waited=`)
	goOn = s.stop()
	p.says(`msg="the shared disk does not answer; `)
	p.term()
	p.says(`msg="the bridge ends although calls on a disk have not returned; `)
	goOn() // the process stays in the kernel until FUSE answers a call that the server has read; NFS does not wait
	p.ends()
	p = s.start()
	p.says("msg=started ") // the bridge still has its lease
	p.term()
	p.ends()
}

// cacheAlone makes the disk the cache's alone.
func (s bridgeSite) cacheAlone() {
	s.t.Helper()
	text, err := os.ReadFile(s.config)
	must(s.t, err)
	of := strings.Replace(string(text), fmt.Sprintf("shared = %q", s.shared), fmt.Sprintf("shared = %q", s.t.TempDir()), 1)
	must(s.t, os.WriteFile(s.config, fmt.Appendf(nil, "%s[cache]\ndir = %q\n", of, s.shared), 0o600))
}

// The cache may be on another disk than the shared directory.
func TestBridgeStartsWhenTheDiskOfItsCacheAnswers(t *testing.T) {
	t.Parallel()
	s := newBridgeSite(t)
	s.cacheAlone()
	goOn := s.stop()
	if got := s.run("run", "--once"); !strings.Contains(got, "the disk of "+s.shared+" does not answer") {
		t.Errorf("run --once says\n%s", got)
	}
	p := s.start()
	p.says(`msg="the disk of cache.dir does not answer; the bridge starts when it does"`)
	goOn()
	p.says("msg=started ")
	p.term()
	p.ends()
}

func TestDoctorSaysThatTheDiskOfTheCacheHangs(t *testing.T) {
	t.Parallel()
	s := newBridgeSite(t)
	s.cacheAlone()
	s.stop()
	if got, want := s.run("doctor"), "failed   cache.dir: the disk of "+s.shared; !strings.Contains(got, want) {
		t.Errorf("doctor says\n%swant %q", got, want)
	}
}

// workerProgram is cl-worker.
var workerProgram = testenv.Program{Module: "../..", Package: "./cmd/cl-worker"}

func TestProbeSaysThatTheSharedDiskHangs(t *testing.T) {
	t.Parallel()
	s := newBridgeSite(t)
	s.stop()
	if got := output(t, workerProgram.Path(t), "probe", "--shared", s.shared); !strings.Contains(got, " does not answer (a call has not returned for 5s)") {
		t.Errorf("cl-worker probe says\n%s", got)
	}
}

func TestBridgeStartsWhenItsDiskAnswers(t *testing.T) {
	t.Parallel()
	s := newBridgeSite(t)
	goOn := s.stop()
	p := s.start()
	p.says(`msg="the shared disk does not answer; the bridge starts when it does"`)
	p.term()
	p.ends()
	p = s.start()
	p.says(`msg="the shared disk does not answer; the bridge starts when it does"`)
	goOn()
	p.says("msg=started ")
	p.term()
	p.ends()
}
