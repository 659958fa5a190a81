package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestOutputOfAKilledProgramIsKept(t *testing.T) {
	t.Parallel()
	x := prepare(t, "echo to stdout; echo to stderr >&2; kill -KILL $$", nil)
	code, exit := x.start().wait()
	if code != 137 || exit.Cause != spool.CauseUser || exit.Failure != "Exit code 137: killed (signal 9). The end of stderr: to stderr" {
		t.Errorf("exit code %d, %+v", code, exit)
	}
	if x.file("stdout") != "to stdout\n" || x.file("stderr") != "to stderr\n" {
		t.Errorf("stdout %q, stderr %q", x.file("stdout"), x.file("stderr"))
	}
}

// The next worker on the node removes the leftovers of a killed one, also directories
// that the command has closed.
func TestNextWorkerSweepsWhatAKilledOneLeft(t *testing.T) {
	t.Parallel()
	sweepsAfterKill(t, "true")
}

// Files of subordinate ids are not the user's to remove, outside of a namespace with these ids.
func TestNextWorkerSweepsFilesOfSubordinateIDs(t *testing.T) {
	t.Parallel()
	testenv.SubordinateIDs(t)
	x := sweepsAfterKill(t, "for dir in /opt $TMPDIR .; do mkdir -p $dir/others/in; echo x >$dir/others/in/x; chown 1000:1000 $dir/others $dir/others/in $dir/others/in/x; chmod 0700 $dir/others; done; test $(stat -c %u others) = 1000")
	var others syscall.Stat_t
	must(t, syscall.Stat(filepath.Join(x.spec.RunDir, "others"), &others))
	if u := testenv.Researcher(t); int(others.Uid) == u.UID {
		t.Fatal("the command left no files of other ids, so this test shows nothing")
	}
	remove := exec.Command("/proc/self/exe", removeTree, x.spec.RunDir) // as a bridge does
	remove.SysProcAttr = &syscall.SysProcAttr{Credential: testenv.Researcher(t).Credential}
	if output, err := remove.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
	if left, err := os.Lstat(x.spec.RunDir); !os.IsNotExist(err) {
		t.Errorf("left: %v, %v", left, err)
	}
}

// sweepsAfterKill runs a command that first does more, kills its worker, and checks that the next worker
// on the node leaves nothing in the scratch.
func sweepsAfterKill(t *testing.T, more string) *execution {
	t.Helper()
	x := prepare(t, "echo said; ("+more+") || exit; mkdir -p /shut/in && chmod 0 /shut; echo ready > began; sleep 1000", nil).start()
	x.awaitCommand()
	x.kill()
	if x.file("stdout") != "said\n" {
		t.Errorf("stdout %q", x.file("stdout"))
	}
	x.sweptByNext()
	return x
}

// sweptByNext checks that the killed worker has left its private directory, and that the next worker on the node
// leaves nothing in the scratch.
func (x *execution) sweptByNext() {
	x.t.Helper()
	left, err := filepath.Glob(filepath.Join(x.spec.Scratch, "cl-worker-*"))
	must(x.t, err)
	if len(left) != 1 {
		x.t.Fatalf("the killed worker's private directory is %q", left)
	}
	long := time.Now().Add(-time.Hour)
	must(x.t, os.Chtimes(left[0], long, long))

	next := prepare(x.t, "true", func(_ string, s *spool.Spec) { s.Scratch = x.spec.Scratch })
	if code, exit := next.start().wait(); code != 0 { // and nothing is left in the scratch directory
		x.t.Errorf("exit code %d, %+v, the worker said: %s", code, exit, strings.TrimSpace(next.log.String()))
	}
}

// kill kills the worker, and waits until its processes have ended.
func (x *execution) kill() {
	x.t.Helper()
	must(x.t, x.cmd.Process.Kill())
	_ = x.cmd.Wait() // it was killed
	x.await("no process is left", func() bool { return len(x.processes(string(x.layout))) == 0 })
	if exit, err := x.attempt.ReadExit(); err == nil {
		x.t.Errorf("the killed worker has recorded %+v", exit)
	}
}

// A command that writes without end stops with its worker, and its output has no hole.
func TestWorkerThatIsKilledInAFloodOfOutputStopsIt(t *testing.T) {
	t.Parallel()
	x := prepare(t, "i=0; while :; do i=$((i+1)); echo $i; echo $i >&2; done", nil).start()
	const flood = 1 << 20
	size := func() int64 {
		info, err := os.Stat(filepath.Join(x.spec.RunDir, "stdout"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	x.await("much is written", func() bool { return size() > flood })
	x.kill()
	for _, name := range outputFiles {
		for i, line := range strings.SplitAfter(x.file(name), "\n") {
			if want := strconv.Itoa(i+1) + "\n"; line != want && !strings.HasPrefix(want, line) {
				t.Fatalf("line %d of %s is %q", i+1, name, line)
			}
		}
	}
	x.sweptByNext()
}

// outputFiles are those of every command.
var outputFiles = []string{"stdout", "stderr"}

// The next worker removes what was unpacked of an image.
func TestWorkerThatIsKilledWhileItUnpacksIsSweptUp(t *testing.T) {
	t.Parallel()
	x := prepare(t, "true", nil)
	installed, err := exec.LookPath("unsquashfs")
	must(t, err)
	code, err := os.ReadFile(installed)
	must(t, err)
	program, slow := filepath.Join(string(x.layout), "unsquashfs"), filepath.Join(string(x.layout), "slow")
	testenv.WriteProgram(t, program, code)
	testenv.WriteProgram(t, slow, []byte("#!/bin/sh\n"+program+" \"$@\"; sleep 1000; true\n"))
	x.withoutFuse("mount --bind " + slow + " " + installed)
	x.start()
	unpacked := func() bool {
		files, err := filepath.Glob(filepath.Join(x.spec.Scratch, "cl-worker-*/container-*/root/bin/*"))
		return err == nil && len(files) > 0
	}
	x.await("files are unpacked", unpacked)
	x.kill()
	if !unpacked() {
		t.Fatal("nothing is left of the image, so this test shows nothing")
	}
	x.sweptByNext()
}

// A worker that is killed while it copies results to the shared disk leaves only whole files there, and one with the
// name of an incomplete copy.
func TestWorkerThatIsKilledWhileItCopiesResultsLeavesWholeFiles(t *testing.T) {
	t.Parallel()
	const each, content = 3000, "whole\n"
	x := prepare(t, fmt.Sprintf("mkdir r; i=0; while test $i -lt %d; do i=$((i+1)); echo whole >r/$i; done", each), func(_ string, s *spool.Spec) {
		s.WorkingDirDisk = spool.WorkingDirLocal
	}).start()
	copied := func() []string {
		files, err := filepath.Glob(filepath.Join(x.spec.RunDir, "r/*"))
		must(t, err)
		return files
	}
	x.await("some results are copied", func() bool { return len(copied()) > 0 })
	x.kill()
	files := copied()
	for _, name := range files {
		if text, err := os.ReadFile(name); err != nil || string(text) != content {
			t.Errorf("%s holds %q, %v", name, text, err)
		}
	}
	if len(files) == each {
		t.Skip("the copy was faster than the kill")
	}
	x.sweptByNext()
}
