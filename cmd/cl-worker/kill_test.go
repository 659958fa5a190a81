package main

import (
	"os"
	"os/exec"
	"path/filepath"
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
	if code != 137 || exit.Cause != spool.CauseUser || exit.Failure != "Exit code 137: killed (signal 9)." {
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
	must(t, x.cmd.Process.Kill())
	_ = x.cmd.Wait() // it was killed
	x.await("no process is left", func() bool { return len(x.processes(string(x.layout))) == 0 })
	if x.file("stdout") != "said\n" {
		t.Errorf("stdout %q", x.file("stdout"))
	}
	left, err := filepath.Glob(filepath.Join(x.spec.Scratch, "cl-worker-*"))
	must(t, err)
	if len(left) != 1 {
		t.Fatalf("the killed worker's private directory is %q", left)
	}
	long := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(left[0], long, long))

	next := prepare(t, "true", func(_ string, s *spool.Spec) { s.Scratch = x.spec.Scratch })
	if code, exit := next.start().wait(); code != 0 { // and nothing is left in the scratch directory
		t.Errorf("exit code %d, %+v, the worker said: %s", code, exit, strings.TrimSpace(next.log.String()))
	}
	return x
}
