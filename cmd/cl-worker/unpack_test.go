package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/spool"
)

// A node on which images cannot be mounted unpacks them and runs the bundle. The record
// names the method, and no unpacked file stays.
func TestNodeThatLetsNobodyMountImagesUnpacksThem(t *testing.T) {
	t.Parallel()
	x := prepare(t, "echo result > result; cat result; id -u", nil)
	x.withoutFuse("true")

	code, exit := x.start().wait()
	if code != 0 || exit.Cause != spool.CauseSucceeded || x.file("stdout") != "result\n0\n" {
		t.Fatalf("exit code %d, %+v, stdout %q; the worker said: %s", code, exit, x.file("stdout"), x.log.String())
	}
	const note = "The image was unpacked for this run alone, which takes time and room on the node: this node does not let ordinary users open /dev/fuse"
	if !strings.HasPrefix(exit.Note, note) || !strings.Contains(x.log.String(), note) {
		t.Errorf("noted %q, and in the job's output: %s", exit.Note, x.log.String())
	}
}

// withoutFuse makes the worker run on a node on which it may not mount images. more is a further preparation.
func (x *execution) withoutFuse(more string) {
	x.t.Helper()
	self, err := os.Open("/proc/self/exe")
	must(x.t, err)
	x.t.Cleanup(func() { must(x.t, self.Close()) })
	plain := x.cmd
	x.cmd = exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec",
		`mount --bind /dev/full /dev/fuse; mount -o remount,bind,ro,nodev /dev/fuse; `+more+`; exec /proc/self/fd/3 exec "$0"`, x.attempt.SpecPath())
	x.cmd.Env, x.cmd.Dir, x.cmd.Stderr, x.cmd.SysProcAttr = plain.Env, plain.Dir, plain.Stderr, plain.SysProcAttr
	x.cmd.ExtraFiles = []*os.File{self}
}
