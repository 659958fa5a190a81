package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/onnode"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

// inNamespace runs the worker in a mount namespace that a shell command has changed.
func (x *execution) inNamespace(preparation string) {
	x.t.Helper()
	testenv.Root(x.t)
	u := testenv.Researcher(x.t)
	worker := x.cmd.Args[1:]
	x.cmd.Path = "/usr/bin/unshare"
	x.cmd.Args = append([]string{
		"unshare", "--mount", "sh", "-ec", preparation + fmt.Sprintf(`; exec setpriv $options --reuid=%d --regid=%d --clear-groups /proc/self/fd/3 "$@"`, u.UID, u.GID), "sh",
	}, worker...)
	self, err := os.Open("/proc/self/exe")
	must(x.t, err)
	x.t.Cleanup(func() { _ = self.Close() })
	x.cmd.ExtraFiles = []*os.File{self}
	x.cmd.SysProcAttr = &syscall.SysProcAttr{}
}

// A job on a node with such a scratch directory ends at once, so the node is free and
// gets the next job.
func TestScratchThatCannotBeUsedIsTheNodesFault(t *testing.T) {
	t.Parallel()
	const advice = " (the queue's scratch in the bridge's configuration)."
	for _, test := range []struct{ name, preparation, want string }{
		{"no room", "mount -t tmpfs -o mode=1777,size=2m none %[1]s; head -c 1500k /dev/zero >%[1]s/others", "is full: it has 548 KiB free" + advice},
		{"no room at all", "mount -t tmpfs -o mode=1777,size=2m none %[1]s; head -c 3m /dev/zero >%[1]s/others || true", "is full: it has 0 KiB free" + advice},
		{"few inodes", "mount -t tmpfs -o mode=1777,nr_inodes=20 none %[1]s", "is full: it can have 18 more files" + advice},
		{"no inodes", "mount -t tmpfs -o mode=1777,nr_inodes=1 none %[1]s", ": no space left on device" + advice},
		{"read-only", "mount -t tmpfs -o mode=1777,ro none %[1]s", ": read-only file system" + advice},
		{"missing", "rmdir %[1]s", ": no such file or directory" + advice},
		{"no directory", "rmdir %[1]s; touch %[1]s", ": not a directory" + advice},
		{"closed", "mount -t tmpfs -o mode=0700 none %[1]s", ": permission denied" + advice},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := prepare(t, "true", nil)
			x.inNamespace(fmt.Sprintf(test.preparation, x.spec.Scratch))
			x.cmd.Env = append(x.cmd.Env, "SLURMD_NODENAME=gpu7")
			code := x.start().end()
			exit, err := x.attempt.ReadExit()
			must(t, err)
			if code != onnode.ExitNoStatus || exit.Cause != spool.CausePlatform || !exit.NotStarted || !exit.NodeAtFault || exit.SharedDiskFull {
				t.Errorf("exit code %d, %+v", code, exit)
			}
			if said := exit.Failure; !strings.HasPrefix(said, "Node gpu7: make a private directory: ") || !strings.HasSuffix(said, test.want) || strings.Contains(said, "\n") {
				t.Errorf("%q, want %q", said, test.want)
			}
		})
	}
}

func TestNoexecScratchIsSaidWhereItMatters(t *testing.T) {
	t.Parallel()
	const noexec = "mount -t tmpfs -o mode=1777,noexec none %s"
	for _, test := range []struct {
		name, command string
		code          int
		want          string
	}{
		{"commands of the image", "true", 0, ""},
		{
			"a program that the command writes", "printf '#!/bin/sh\ntrue\n' >$TMPDIR/mine; chmod +x $TMPDIR/mine; exec $TMPDIR/mine", 126,
			"Exit code 126: on node gpu7 no program in $TMPDIR can be executed, because the queue's scratch directory is mounted noexec there.",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := prepare(t, test.command, nil)
			x.inNamespace(fmt.Sprintf(noexec, x.spec.Scratch))
			x.cmd.Env = append(x.cmd.Env, "SLURMD_NODENAME=gpu7")
			code, exit := x.start().wait()
			if code != test.code || !strings.HasPrefix(exit.Failure, test.want) || test.want == "" && exit.Failure != "" {
				t.Errorf("exit code %d, %+v; %s", code, exit, x.log.String())
			}
		})
	}
}

// The run directory is on the shared disk, which all nodes have.
func TestFullSharedDiskIsNotTheNodesFault(t *testing.T) {
	t.Parallel()
	x := prepare(t, "true", nil)
	testenv.SmallDisk(t, x.spec.RunDir, "mode=0777,nr_inodes=1")
	code, exit := x.start().wait()
	if code != onnode.ExitNoStatus || !exit.NotStarted || !exit.SharedDiskFull || !strings.Contains(exit.Failure, "no space left on device") {
		t.Errorf("exit code %d, %+v", code, exit)
	}
}
