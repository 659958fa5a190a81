package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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

// Other users of the disk have filled it, and the command has used less than it requested.
func TestI10DiskThatIsFullForAllIsNoVerdictOnABundle(t *testing.T) {
	t.Parallel()
	x := prepare(t, "head -c 8000000 /dev/zero > big", func(_ string, s *spool.Spec) { s.DiskBytes = 16 << 20 })
	disk, u := filepath.Dir(x.spec.RunDir), testenv.Researcher(t)
	testenv.SmallDisk(t, disk, "size=4m,mode=0777")
	must(t, errors.Join(
		os.WriteFile(filepath.Join(disk, "others"), make([]byte, 2<<20), 0o600),
		os.Mkdir(x.spec.RunDir, 0o700), os.Chown(x.spec.RunDir, u.UID, u.GID),
	))
	code, exit := x.start().wait()
	if code != 1 || exit.Cause != spool.CausePlatform || !strings.HasPrefix(exit.Failure, "Exit code 1, and the disk of the working directory is full: the run used ") {
		t.Errorf("exit code %d, %+v", code, exit)
	}
}

func TestDiskLimitCountsDirectoriesOfOtherIDs(t *testing.T) {
	t.Parallel()
	testenv.SubordinateIDs(t)
	command := "mkdir dir; head -c 3000000 /dev/zero >dir/big; chown 1000:1000 dir/big dir; chmod 0700 dir; sleep 1000"
	x := prepare(t, command, func(_ string, s *spool.Spec) { s.DiskBytes = 1 << 20 })
	if _, exit := x.start().wait(); exit.Cause != spool.CauseLimit || exit.Usage.DiskBytes < 3000000 {
		t.Errorf("%+v, the worker said: %s", exit, x.log.String())
	}
	if x.file("dir/big") == "" {
		t.Error("the file is not a result")
	}
}
