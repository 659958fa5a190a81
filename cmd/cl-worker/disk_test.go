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
	x := prepare(t, "echo begun; until [ -s stdout ]; do sleep 0.01; done; head -c 8000000 /dev/zero > big", nil)
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

// oneID is a preparation of a node whose user has no subordinate ids.
const oneID = "mount --bind /dev/null /etc/subuid"

// No place and no mode hides files from the disk limit.
func TestDiskLimitCountsWhatTheCommandHides(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	const fill = "head -c 3000000 /dev/zero >"
	for name, tt := range map[string]struct {
		preparation, command string
		local                bool
	}{
		"closed directory":          {command: "mkdir dir; " + fill + "dir/big; chmod 0 dir; sleep 1000"},
		"closed directory, one id":  {preparation: oneID, command: "mkdir dir; " + fill + "dir/big; chmod 0 dir; sleep 1000"},
		"closed working directory":  {preparation: oneID, command: fill + "big; chmod 0 .; sleep 1000"},
		"closed at the end, one id": {preparation: oneID, command: "mkdir dir; " + fill + "dir/big; chmod 0 dir"},
		"open, without a name":      {command: "exec 3>x; rm x; " + fill + "&3; sleep 1000"},
		"open in /tmp, no name":     {command: "exec 3>/tmp/x; rm /tmp/x; " + fill + "&3; sleep 1000"},
		"/tmp":                      {command: fill + "/tmp/big; sleep 1000"},
		"TMPDIR":                    {command: fill + "$TMPDIR/big; sleep 1000"},
		"TMPDIR, local":             {command: fill + "$TMPDIR/big; sleep 1000", local: true},
		"the container's root":      {command: "mkdir /data; " + fill + "/data/big; sleep 1000"},
		"holes":                     {command: "dd if=/dev/null of=big bs=1 seek=6G; sleep 1000"},
		"at the end":                {command: fill + "big"},
		"at the end, local":         {command: fill + "big", local: true},
		"at the end, in /tmp":       {command: fill + "/tmp/big"},
		"output":                    {command: "head -c 3000000 /dev/zero; sleep 1000"},
		"output of a local command": {command: "head -c 3000000 /dev/zero; sleep 1000", local: true},
		"a root that was unpacked":  {preparation: "mount --bind /dev/null /dev/fuse", command: fill + "/big; sleep 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := prepare(t, tt.command, func(_ string, s *spool.Spec) {
				s.DiskBytes = 1 << 20
				if tt.local {
					s.WorkingDirDisk = spool.WorkingDirLocal
				}
			})
			if tt.preparation != "" {
				x.inNamespace(tt.preparation)
			}
			_, exit := x.start().wait()
			if exit.Cause != spool.CauseLimit || !strings.HasPrefix(exit.Failure, "Disk limit 1m exceeded (used ") || exit.Usage.DiskBytes <= 1<<20 {
				t.Errorf("%+v, stderr %q, the worker said: %s", exit, x.file("stderr"), x.log.String())
			}
		})
	}
}

// The image's own files are not the command's, whether they are mounted or unpacked.
func TestDiskLimitDoesNotCountTheImage(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	for name, preparation := range map[string]string{"mounted": "true", "unpacked": "mount --bind /dev/null /dev/fuse"} {
		x := prepare(t, "echo hello >/tmp/x; echo hello", func(_ string, s *spool.Spec) { s.DiskBytes = 1 << 20 })
		x.inNamespace(preparation)
		if code, exit := x.start().wait(); code != 0 || exit.Usage.DiskBytes <= 0 {
			t.Errorf("%s: %+v, the worker said: %s", name, exit, x.log.String())
		}
	}
}

// Nothing of this host counts the container's memory but the worker.
func TestMemoryLimitCountsFilesInMemory(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/dev/shm/x", "/dev/x"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			x := prepare(t, "head -c 100000000 /dev/zero >"+path+"; sleep 1000", func(_ string, s *spool.Spec) { s.MemoryBytes = 64 << 20 })
			_, exit := x.start().wait()
			if exit.Cause != spool.CauseLimit || !strings.HasPrefix(exit.Failure, "Memory limit 64m exceeded (used ") || exit.Usage.MemoryPeak <= 64<<20 {
				t.Errorf("%+v, stderr %q, the worker said: %s", exit, x.file("stderr"), x.log.String())
			}
		})
	}
}

func TestDiskLimitCountsDirectoriesOfOtherIDs(t *testing.T) {
	t.Parallel()
	testenv.SubordinateIDs(t)
	command := "mkdir dir; head -c 3000000 /dev/zero >dir/big; chown 1000:1000 dir/big dir; chmod 0700 dir; sleep 1000"
	x := prepare(t, command, func(_ string, s *spool.Spec) { s.DiskBytes = 1 << 20 })
	if _, exit := x.start().wait(); exit.Cause != spool.CauseLimit || exit.Usage.DiskBytes <= 1<<20 {
		t.Errorf("%+v, the worker said: %s", exit, x.log.String())
	}
	if x.file("dir/big") == "" {
		t.Error("the file is not a result")
	}
}
