package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/cmd/internal/onnode"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// shipped is cl-worker as it is shipped.
var shipped = testenv.Program{Package: "."}

// engine is Docker's engine. TestMain stops it.
var engine testenv.Docker

// prepareRuntime prepares a run of the program that is really shipped, by a
// way that its specification asks for.
func prepareRuntime(t *testing.T, runtime runtimes.Name, gpus int, command string) *execution {
	t.Helper()
	x := prepare(t, command, func(_ string, s *spool.Spec) { s.Runtime, s.GPUs = runtime, gpus })
	x.program = shipped.Path(t)
	x.cmd.Path = x.program
	return x
}

// findApptainer is the Apptainer of this machine.
func findApptainer(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("CLTEST_APPTAINER"), "apptainer"))
	if err != nil {
		t.Skipf("needs Apptainer, on PATH or at $CLTEST_APPTAINER: %v", err)
	}
	return path
}

func TestContainerIsRunTheWayThatTheQueueAsksFor(t *testing.T) {
	t.Parallel()
	apptainer := findApptainer(t)
	runtime := runtimes.Apptainer
	if filepath.Base(apptainer) == "singularity" {
		runtime = runtimes.Singularity
	}
	x := prepareRuntime(t, runtime, 0, "id -u; pwd; echo $HOME $TMPDIR; echo $FROM_IMAGE; test -e /.container/init && echo by Apptainer; echo result >file; exit 3")
	x.cmd.Env = append(x.cmd.Env, "PATH="+filepath.Dir(apptainer)+":/usr/bin:/bin")
	code, exit := x.start().wait()
	if code != 3 || exit.Ran.Runtime != runtime || exit.Ran.Reason != string(runtime)+" was asked for" {
		t.Errorf("exit code %d, %+v; stderr %q; the worker said: %s", code, exit, x.file("stderr"), x.log.String())
	}
	if got := x.file("stdout"); got != "0\n/"+bundle+"\n/"+bundle+" /"+bundle+"_tmp\nyes\nby Apptainer\n" || x.file("file") != "result\n" {
		t.Errorf("output %q", got)
	}
}

// loadImage brings the image of all tests into Docker's store.
func loadImage(t *testing.T, as string) (host string) {
	t.Helper()
	host, client := engine.Host(t)
	img, err := makeImage()
	must(t, err)
	tag, err := name.NewTag(as)
	must(t, err)
	file := filepath.Join(t.TempDir(), "image.tar")
	must(t, tarball.WriteToFile(file, tag, img))
	docker := func(args ...string) {
		cmd := exec.Command(client, args...)
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+host)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v: %s", args, err, said)
		}
	}
	docker("load", "--input", file)
	t.Cleanup(func() { docker("rmi", "--force", tag.String()) })
	return host
}

// An engine that is root's has files of root's in the working directory.
func TestContainerOfAnEngineLeavesItsResultsToTheUser(t *testing.T) {
	t.Parallel()
	const image = "localhost/cl-worker-test:1"
	host := loadImage(t, image)
	x := prepare(t, "id -u; pwd; echo $HOME $FROM_IMAGE; touch $TMPDIR/x; mkdir -m 0700 made; echo result >made/file; sleep 1; exit 3", func(_ string, s *spool.Spec) {
		s.Runtime, s.Inputs = runtimes.Docker, spool.Inputs{PinnedReference: image}
	})
	x.cmd.Path = shipped.Path(t)
	x.cmd.Env = append(x.cmd.Env, "DOCKER_HOST="+host)
	code, exit := x.start().wait()
	if status, err := x.attempt.ReadStatus(); err != nil || status.Container.Runtime != runtimes.Docker || status.Container.Name == "" || status.Container.PID == 0 {
		t.Errorf("status %+v, %v", status, err)
	}
	if code != 3 || exit.Ran.Runtime != runtimes.Docker || exit.CommandStarted.IsZero() {
		t.Errorf("exit code %d, %+v; stderr %q; the worker said: %s", code, exit, x.file("stderr"), x.log.String())
	}
	if got := x.file("stdout"); got != "0\n/"+bundle+"\n/"+bundle+" yes\n" || x.file("made/file") != "result\n" {
		t.Errorf("output %q", got)
	}
	info, err := os.Stat(filepath.Join(x.spec.RunDir, "made/file"))
	must(t, err)
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != testenv.Researcher(t).UID {
		t.Errorf("the result belongs to %+v", info.Sys())
	}
}

func TestContainerOfAnEngineIsStoppedAtItsMemoryLimit(t *testing.T) {
	t.Parallel()
	host := loadImage(t, "localhost/cl-worker-test:2")
	x := prepare(t, "echo begun; tail /dev/zero", func(_ string, s *spool.Spec) {
		s.Runtime, s.Inputs, s.MemoryBytes = runtimes.Docker, spool.Inputs{PinnedReference: "localhost/cl-worker-test:2"}, 100<<20
	})
	x.cmd.Path = shipped.Path(t)
	x.cmd.Env = append(x.cmd.Env, "DOCKER_HOST="+host)
	_, exit := x.start().wait()
	if exit.Cause != spool.CauseLimit || !strings.HasPrefix(exit.Failure, "Memory limit 100m exceeded (used 1") || exit.Usage.MemoryPeak < 100<<20 {
		t.Errorf("%+v; the worker said: %s", exit, x.log.String())
	}
	if x.file("stdout") != "begun\n" || x.file("stderr") != "" && !strings.Contains(x.file("stderr"), "Killed") {
		t.Errorf("stdout %q, stderr %q", x.file("stdout"), x.file("stderr"))
	}
}

// dash says "Cannot fork" and exits with 2.
const forks = "i=0; while [ $i -lt 1000 ]; do sleep 1000 & i=$((i+1)); done; echo all"

func TestContainerOfAnEngineNamesItsLimitOfProcesses(t *testing.T) {
	t.Parallel()
	host := loadImage(t, "localhost/cl-worker-test:3")
	x := prepare(t, forks, func(_ string, s *spool.Spec) {
		s.Runtime, s.Inputs, s.MaxProcesses = runtimes.Docker, spool.Inputs{PinnedReference: "localhost/cl-worker-test:3"}, 100
	})
	x.cmd.Path = shipped.Path(t)
	x.cmd.Env = append(x.cmd.Env, "DOCKER_HOST="+host)
	_, exit := x.start().wait()
	const want = "Exit code 2. It had as many processes and threads as a run may have here (100), and the system refused more. The end of stderr: /bin/sh: 0: Cannot fork"
	if exit.Cause != spool.CauseUser || exit.Failure != want || x.file("stdout") != "" {
		t.Errorf("%+v; stdout %q, stderr %q; the worker said: %s", exit, x.file("stdout"), x.file("stderr"), x.log.String())
	}
}

func TestContainerIsRunTheWayThatTheNodeHas(t *testing.T) {
	t.Parallel()
	x := prepareRuntime(t, "", 0, "true")
	x.succeed()
	exit, err := x.attempt.ReadExit()
	must(t, err)
	if exit.Ran.Runtime != runtimes.Builtin || !strings.Contains(exit.Ran.Reason, "has all that it needs") {
		t.Errorf("%+v", exit.Ran)
	}
}

func TestNodeWithoutWhatTheQueueAsksForSaysSo(t *testing.T) {
	t.Parallel()
	if path, err := exec.LookPath("singularity"); err == nil {
		t.Skipf("this machine has %s", path)
	}
	x := prepareRuntime(t, runtimes.Singularity, 0, "true")
	x.cmd.Env = append(x.cmd.Env, "SLURMD_NODENAME=n1")
	code, exit := x.start().wait()
	if code != onnode.ExitNoStatus || exit.Cause != spool.CausePlatform || exit.Failure != "Node n1: singularity was asked for: this node lacks the program singularity: its package singularity-ce has to be installed." {
		t.Errorf("exit code %d, %+v", code, exit)
	}
}

// probeAs returns the output of cl-worker probe for a user; nil is the test's own.
func probeAs(t *testing.T, as *syscall.Credential, scratch string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(shipped.Path(t), append([]string{"probe", "--scratch", scratch}, args...)...)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin", "HOME=" + scratch}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	return said.String(), err
}

// The kernel bounds no processes of root, and no job has a cgroup here.
func TestProbeNamesTheWallsThatTheKernelDoesNotMake(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	testenv.Containers(t)
	text, err := probeAs(t, nil, t.TempDir(), "--runtime", "builtin")
	if err != nil ||
		!strings.Contains(text, "\nprocess limit    no   the worker is root of this node, whose processes Linux does not count: max_processes needs another user\n") ||
		!strings.Contains(text, "\nmemory limit     no   no cgroup limits the memory here: the worker measures once a second, and ends a command above its limit\n") ||
		!strings.HasSuffix(text, "\na wall is weaker on this node than on others: a command can have as many processes as the account may\n") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestProbeSaysWhatTheNodeHasAndTheChoice(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	u := testenv.Researcher(t)
	scratch := testenv.SharedDir(t)
	tried := func(args ...string) (string, error) { return probeAs(t, u.Credential, scratch, args...) }
	text, err := tried()
	if err != nil || !strings.Contains(text, "user namespaces  yes\n") || !strings.HasSuffix(text, "\nbuiltin: nothing else was asked for, and this node has all that it needs\n") {
		t.Errorf("%v: %s", err, text)
	}
	text, err = tried("--json", "--runtime", "builtin")
	var said probe.Report
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if err != nil || said.Choice == nil || said.Choice.Runtime != runtimes.Builtin || said.Host.Bubblewrap.Path == "" {
		t.Errorf("%v: %s", err, text)
	}
	if _, err := exec.LookPath("singularity"); err != nil {
		text, err = tried("--runtime", "singularity")
		if err == nil || !strings.Contains(text, "singularity was asked for: this node lacks the program singularity") {
			t.Errorf("%v: %s", err, text)
		}
	}
	if _, code, err := call(t, "probe", "--runtime", "rkt"); code != program.ExitUsage || err == nil {
		t.Errorf("%d, %v", code, err)
	}
}
