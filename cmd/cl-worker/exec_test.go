package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/subids"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

const bundle = "0x0123456789abcdef0123456789abcdef"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"container-init", "exec", subids.Command}, os.Args[1]) {
		main()
	}
	if filepath.Base(os.Args[0]) == "cl-worker" { // in a pod
		main()
	}
	if code, ran := remove(os.Args); ran {
		os.Exit(code)
	}
	dir, err := os.MkdirTemp("/var/tmp", "cl-worker-test-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	imageDir = dir
	code := m.Run()
	for _, p := range []*testenv.Program{&shipped, &researchers, &answering, &imageBuilder, &managing} {
		p.Remove()
	}
	if err := engine.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// removeTree is an argument with which this program removes a directory.
const removeTree = "remove-tree"

func remove(args []string) (code int, ran bool) {
	if len(args) != 3 || args[1] != removeTree {
		return 0, false
	}
	subids.Main(args)
	if err := filetree.Remove(args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// execution is a `cl-worker exec` of researcher's.
type execution struct {
	t       *testing.T
	layout  spool.Layout
	attempt spool.Attempt
	spec    spool.Spec
	cmd     *exec.Cmd
	log     bytes.Buffer
	program string   // for jobs; empty means this one
	path    string   // what jobs have in PATH first, with a colon
	env     []string // what jobs have in their environment, too
}

// prepare writes the specification that change makes of a plain one.
func prepare(t *testing.T, command string, change func(dir string, s *spool.Spec)) *execution {
	t.Helper()
	testenv.Containers(t)
	u := testenv.Researcher(t)
	dir := testenv.SharedDir(t)
	x := &execution{t: t, layout: spool.Layout(dir)}
	x.attempt = x.layout.Attempt(bundle, "1-b1")
	x.spec = spool.Spec{
		Bundle: bundle, Attempt: 1, Command: command, Inputs: spool.Inputs{SIF: image(t)},
		RunDir: x.layout.RunDir(bundle, "1-b1"), Scratch: filepath.Join(dir, "scratch"),
	}
	for _, d := range append(x.layout.Directories(), x.spec.Scratch) {
		must(t, os.MkdirAll(d, 0o755))
	}
	if change != nil {
		change(dir, &x.spec)
	}
	must(t, x.attempt.WriteSpec(x.spec))
	must(t, filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		must(t, err)
		return os.Lchown(name, u.UID, u.GID)
	}))
	x.cmd = exec.Command("/proc/self/exe", "exec", x.attempt.SpecPath())
	x.cmd.Env = []string{"PATH=/usr/bin:/bin", "HOST_SECRET=leaked", "SLURM_JOB_ID=1"}
	x.cmd.Dir = "/"
	x.cmd.Stderr = &x.log
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.Credential}
	return x
}

func (x *execution) start() *execution {
	x.t.Helper()
	must(x.t, x.cmd.Start())
	return x
}

// end waits for the end of the worker, and returns its exit code.
func (x *execution) end() int {
	x.t.Helper()
	_ = x.cmd.Wait() // its exit code is looked at
	return x.cmd.ProcessState.ExitCode()
}

// wait returns the exit code of the worker and its record.
func (x *execution) wait() (int, spool.Exit) {
	x.t.Helper()
	x.end()
	exit, err := x.attempt.ReadExit()
	if err != nil {
		x.t.Fatalf("%v; the worker said: %s", err, x.log.String())
	}
	if left, err := os.ReadDir(x.spec.Scratch); err != nil || len(left) > 0 {
		x.t.Errorf("left in the scratch directory: %v, %v", left, err)
	}
	return x.cmd.ProcessState.ExitCode(), exit
}

// file is one of the working directory.
func (x *execution) file(name string) string {
	data, err := os.ReadFile(filepath.Join(x.spec.RunDir, name))
	if err != nil && !os.IsNotExist(err) {
		x.t.Fatal(err)
	}
	return string(data)
}

// awaitCommand waits until the command has written that it is ready to a file of
// the working directory.
func (x *execution) awaitCommand() {
	x.t.Helper()
	x.await("the command has begun", func() bool { return strings.Contains(x.file("began"), "ready") })
}

// await waits until something holds.
func (x *execution) await(what string, holds func() bool) {
	x.t.Helper()
	testenv.Await(x.t, what, holds, x.log.String)
}

// succeed runs the command and wants exit status 0.
func (x *execution) succeed() string {
	x.t.Helper()
	code, exit := x.start().wait()
	if code != 0 || exit.Cause != spool.CauseSucceeded {
		x.t.Fatalf("exit code %d, %+v; stderr %q; the worker said: %s", code, exit, x.file("stderr"), x.log.String())
	}
	return x.file("stdout")
}

var must = testenv.Must

func TestHostEnvironmentIsNotVisible(t *testing.T) {
	t.Parallel()
	x := prepare(t, "env; pwd; ls /var/tmp /run/munge /home 2>&1; echo written > here", nil)
	out := x.succeed()
	for _, want := range []string{"FROM_IMAGE=yes\n", "CODALAB=true\n", "HOME=/" + bundle + "\n", "\n/" + bundle + "\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the output:\n%s", want, out)
		}
	}
	for _, leak := range []string{"HOST_SECRET", "SLURM", "CUDA", "cl-slurm", "researcher"} {
		if strings.Contains(out, leak) {
			t.Errorf("%q is in the output:\n%s", leak, out)
		}
	}
	if x.file("here") != "written\n" {
		t.Errorf("the working directory holds %q", x.file("here"))
	}
	info, err := os.Stat(filepath.Join(x.spec.RunDir, "stdout"))
	if err != nil || info.Mode().Perm()&0o600 != 0o600 {
		t.Errorf("stdout: %v, %v", info, err)
	}
}

func TestDependenciesAreReadOnly(t *testing.T) {
	t.Parallel()
	x := prepare(t, `cat data deep/er/dir/inner top; readlink data deep/er top
		for f in data deep/er/dir/inner top /$HOME/../"$(readlink data)"; do (echo x >> "$f") 2>/dev/null && echo "wrote $f"; done
		touch deep/er/new 2>/dev/null && echo "made a file"; echo mine > deep/mine`,
		func(dir string, s *spool.Spec) {
			must(t, os.MkdirAll(filepath.Join(dir, "cache", "tree", "dir"), 0o755))
			must(t, os.MkdirAll(filepath.Join(dir, "cache", "whole"), 0o755))
			for name, text := range map[string]string{"data": "the data\n", "tree/dir/inner": "inner\n", "whole/top": "top\n", "whole/stdout": "of the parent\n"} {
				must(t, os.WriteFile(filepath.Join(dir, "cache", name), []byte(text), 0o666))
			}
			s.Dependencies = []spool.Dependency{
				{ChildPath: "data", Source: filepath.Join(dir, "cache", "data")},
				{ChildPath: "deep/er", Source: filepath.Join(dir, "cache", "tree"), InPlace: true},
				{ChildPath: ".", Source: filepath.Join(dir, "cache", "whole")},
			}
		})
	deps := "/" + bundle + "_dependencies/"
	want := "the data\ninner\ntop\n" + deps + "data\n" + deps + "deep/er\n" + deps + "all/top\n"
	if got := x.succeed(); got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	if got := x.file("deep/mine"); got != "mine\n" {
		t.Errorf("the file beside the dependency holds %q", got)
	}
}

// CodaLab's own worker mounts a dependency whose key begins with a slash at that
// path of the container, and links to nothing (codalab/worker/worker_run_state.py:
// os.path.join(docker_dependencies_path, dep.child_path)).
func TestDependencyAtAnAbsolutePathIsThere(t *testing.T) {
	t.Parallel()
	x := prepare(t, `cat /foo/bar /opt/tree/inner /etc/hosts; ls -A1
		for f in /foo/bar /opt/tree/inner; do (echo x >> "$f") 2>/dev/null && echo "wrote $f"; done; mkdir foo; echo mine > foo/bar`,
		func(dir string, s *spool.Spec) {
			must(t, os.MkdirAll(filepath.Join(dir, "cache", "tree"), 0o755))
			for name, text := range map[string]string{"data": "the data\n", "hosts": "no hosts\n", "tree/inner": "inner\n"} {
				must(t, os.WriteFile(filepath.Join(dir, "cache", name), []byte(text), 0o666))
			}
			s.Dependencies = []spool.Dependency{
				{ChildPath: "/foo/bar", Source: filepath.Join(dir, "cache", "data")},
				{ChildPath: "/opt/tree", Source: filepath.Join(dir, "cache", "tree"), InPlace: true},
				{ChildPath: "/etc/hosts", Source: filepath.Join(dir, "cache", "hosts")},
			}
		})
	if got, want := x.succeed(), "the data\ninner\nno hosts\nstderr\nstdout\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	if got := x.file("foo/bar"); got != "mine\n" {
		t.Errorf("the command's own foo/bar holds %q", got)
	}
}

func TestExitStatusIsTheWorkersToo(t *testing.T) {
	t.Parallel()
	x := prepare(t, "echo out; echo err >&2; exit 3", nil)
	code, exit := x.start().wait()
	if code != 3 || exit.Cause != spool.CauseUser || *exit.ExitCode != 3 || exit.Failure != "Exit code 3. The end of stderr: err" {
		t.Errorf("exit code %d, %+v", code, exit)
	}
	if x.file("stdout") != "out\n" || x.file("stderr") != "err\n" {
		t.Errorf("stdout %q, stderr %q", x.file("stdout"), x.file("stderr"))
	}
}

func TestTermLeavesPartialResultsAndAnExitRecord(t *testing.T) {
	t.Parallel()
	x := prepare(t, `trap 'echo saved > partial; exit 9' TERM; echo ready > began; while :; do sleep 0.05; done`, nil).start()
	x.awaitCommand()
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1} {
		must(t, x.cmd.Process.Signal(s))
	}
	code, exit := x.wait()
	if code != 9 || !exit.Terminated || *exit.ExitCode != 9 || exit.Cause != spool.CausePlatform {
		t.Errorf("exit code %d, %+v", code, exit)
	}
	if x.file("partial") != "saved\n" {
		t.Errorf("partial result %q", x.file("partial"))
	}
	if rang, err := x.layout.Bell().TakeRings("b1"); err != nil || len(rang) != 1 {
		t.Errorf("bell: %v, %v", rang, err)
	}
}

// As Slurm does with some kinds of proctrack. Here the container has ended when TERM reaches its worker.
func TestTermOfAllProcessesOfTheJobIsNoVerdictOnTheCommand(t *testing.T) {
	t.Parallel()
	const marker = "1000048151624"
	x := prepare(t, "exec sleep "+marker, nil).start()
	command := 0
	x.await("the command sleeps", func() bool {
		for pid, line := range x.processes(marker) {
			if strings.HasPrefix(line, "sleep") {
				command = pid
			}
		}
		return command != 0
	})
	must(t, syscall.Kill(command, syscall.SIGTERM))
	x.await("the worker alone is left", func() bool {
		left := x.processes(marker)
		delete(left, x.cmd.Process.Pid)
		return len(left) == 0
	})
	must(t, x.cmd.Process.Signal(syscall.SIGTERM))
	if code, exit := x.wait(); code != 143 || !exit.Terminated || exit.Cause != spool.CausePlatform {
		t.Errorf("exit code %d, %+v", code, exit)
	}
}

// A busy machine delays the KILL, two seconds after TERM, and the command alike: so the test counts the command's
// rounds in that time.
func TestCommandThatIgnoresTermIsKilled(t *testing.T) {
	t.Parallel()
	x := prepare(t, `trap '' TERM; echo ready > began; while :; do sleep 0.05; echo >> rounds; done`, nil).start()
	x.awaitCommand()
	before := len(x.file("rounds"))
	must(t, x.cmd.Process.Signal(syscall.SIGTERM))
	if _, exit := x.wait(); !exit.Terminated || *exit.ExitCode != 137 {
		t.Errorf("%+v", exit)
	}
	if rounds := len(x.file("rounds")) - before; rounds > 120 {
		t.Errorf("the command lived on for %d rounds of 50 ms, want some 40", rounds)
	}
}

func TestKilledWorkerLeavesNoProcess(t *testing.T) {
	t.Parallel()
	const marker = "1000048151623"
	x := prepare(t, "echo ready > began; sleep "+marker+" & sleep "+marker, nil).start()
	x.awaitCommand()
	if running := x.processes(marker); len(running) < 5 {
		t.Fatalf("the container's processes cannot be seen: %v", running)
	}
	must(t, x.cmd.Process.Kill())
	_ = x.cmd.Wait() // it was killed
	x.await("no process is left", func() bool { return len(x.processes(marker)) == 0 })
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Contains(string(mounts), string(x.layout)) {
		t.Error("a mount is left")
	}
	if _, err := x.attempt.ReadExit(); err == nil {
		t.Error("there is an exit record")
	}
}

// processes returns the command lines of the processes that work in the execution's directories or have
// the marker in their command line, by process id.
func (x *execution) processes(marker string) map[int]string {
	x.t.Helper()
	entries, err := os.ReadDir("/proc")
	must(x.t, err)
	found := map[int]string{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // it may have ended
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if strings.Contains(string(line), marker) || strings.Contains(string(line)+cwd, string(x.layout)) {
			found[pid] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return found
}

// This test leans on the limit of processes alone, which the kernel counts for each container from Linux 5.14 on.
func TestRunHasNoMoreProcessesThanItsQueueAllows(t *testing.T) {
	t.Parallel()
	x := prepare(t, forks, func(_ string, s *spool.Spec) { s.MaxProcesses = 100 })
	code, exit := x.start().wait()
	if code != 2 || exit.Cause != spool.CauseUser || x.file("stdout") != "" || !strings.Contains(x.file("stderr"), "annot fork") {
		t.Errorf("exit code %d, %+v; stdout %q, stderr %q", code, exit, x.file("stdout"), x.file("stderr"))
	}
}

func TestNetworkIsByRequestAndByQueue(t *testing.T) {
	t.Parallel()
	testenv.PrivateNetwork(t)
	dev, err := os.ReadFile("/proc/net/dev")
	must(t, err)
	for want, change := range map[string]func(s *spool.Spec){
		"lo":                         func(*spool.Spec) {},
		"lo tap0":                    func(s *spool.Spec) { s.Network = true },
		devices(string(dev)):         func(s *spool.Spec) { s.Network, s.HostNetwork = true, true },
		"lo, and the worker says so": func(s *spool.Spec) { s.NetworkDenied = true },
	} {
		x := prepare(t, "cat /proc/net/dev; exit 7", func(_ string, s *spool.Spec) { change(s) })
		_, exit := x.start().wait()
		got := devices(x.file("stdout"))
		if exit.Failure == "Exit code 7. The command had no network: this worker gives none." {
			got += ", and the worker says so"
		}
		if got != want || exit.ExitCode == nil || *exit.ExitCode != 7 {
			t.Errorf("%s, want %s; %+v", got, want, exit)
		}
	}
}

// devices returns the names of a /proc/net/dev, sorted.
func devices(text string) string {
	var names []string
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestStatusTellsWhatIsUsed(t *testing.T) {
	t.Parallel()
	// With a limit, the disk is measured at the end, however slow the machine is.
	x := prepare(t, "echo ready > began; head -c 1000000 /dev/zero > big; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done",
		func(_ string, s *spool.Spec) { s.DiskBytes = 1 << 30 })
	code, exit := x.start().wait()
	if code != 0 || exit.Usage.UserSeconds <= 0 || exit.Usage.MemoryPeak < 1<<20 || exit.Usage.DiskBytes < 1000000 {
		t.Errorf("exit code %d, %+v", code, exit)
	}
	status, err := x.attempt.ReadStatus()
	if err != nil || status.Stage != spool.StageRunning || status.Token != exit.Token || status.CommandStarted.IsZero() {
		t.Errorf("status %+v, %v", status, err)
	}
}
