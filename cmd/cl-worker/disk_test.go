package main

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/spool"
)

// What the command says of a full disk goes to that disk, and is lost.
func TestFullDiskOfTheWorkingDirectoryIsSaidInASentence(t *testing.T) {
	t.Parallel()
	x := prepare(t, "echo begun; head -c 8000000 /dev/zero > big", nil)
	err := unix.Mount("tmpfs", x.spec.RunDir, "tmpfs", 0, "size=4m,mode=0777")
	if errors.Is(err, unix.EPERM) {
		t.Skip("mounting a small disk takes root")
	}
	must(t, err)
	t.Cleanup(func() { must(t, unix.Unmount(x.spec.RunDir, unix.MNT_DETACH)) })
	code, exit := x.start().wait()
	if code != 1 || exit.Cause != spool.CauseUser || exit.Failure != "Exit code 1, and the disk of the working directory is full." {
		t.Errorf("exit code %d, %+v", code, exit)
	}
	if x.file("stdout") != "begun\n" || exit.Usage.DiskBytes < 3<<20 {
		t.Errorf("stdout %q, %+v", x.file("stdout"), exit.Usage)
	}
}
