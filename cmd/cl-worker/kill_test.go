package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	x := prepare(t, "echo said; mkdir -p /shut/in && chmod 0 /shut; echo ready > began; sleep 1000", nil).start()
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
}
