package main

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

// The command's message about the full disk goes to that disk, and is lost.
func TestFullDiskOfTheWorkingDirectoryIsSaidInASentence(t *testing.T) {
	t.Parallel()
	x := prepare(t, "echo begun; head -c 8000000 /dev/zero > big", nil)
	testenv.SmallDisk(t, x.spec.RunDir, "size=4m,mode=0777")
	code, exit := x.start().wait()
	if code != 1 || exit.Cause != spool.CauseUser || exit.Failure != "Exit code 1, and the disk of the working directory is full." {
		t.Errorf("exit code %d, %+v", code, exit)
	}
	if x.file("stdout") != "begun\n" || exit.Usage.DiskBytes < 3<<20 {
		t.Errorf("stdout %q, %+v", x.file("stdout"), exit.Usage)
	}
}
