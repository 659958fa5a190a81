package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// says runs a command that has to fail, in one sentence with this in it.
func says(t *testing.T, want string, args ...string) {
	t.Helper()
	_, stderr, ended := start(t.Context(), "", args...)
	if got := ended(); got != program.ExitFailure || !strings.Contains(stderr.String(), want) || strings.Contains(stderr.String(), "\n") {
		t.Errorf("%s: exit %d, %s\nwant %s", strings.Join(args, " "), got, stderr, want)
	}
}

func TestServerOnAFullDiskSaysSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk, data := filepath.Join(dir, "disk"), filepath.Join(dir, "disk", "data")
	testenv.Must(t, os.Mkdir(disk, 0o700))
	testenv.SmallDisk(t, disk, "size=4m,mode=0700")
	does(t, "correct horse", "user", "add", "ann", "--data", data)
	backup := filepath.Join(dir, "backup")
	does(t, "", "backup", backup, "--data", data)
	if err := os.WriteFile(filepath.Join(disk, "filler"), make([]byte, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is larger than it should be: %v", err)
	}
	const full = "the disk of the database is full"
	says(t, full, "run", "--data", data, "--listen", "127.0.0.1:0")
	says(t, full, "run", "--data", filepath.Join(disk, "new"), "--listen", "127.0.0.1:0")
	says(t, "no space left on device", "restore", backup, "--data", filepath.Join(disk, "restored"))
	testenv.Must(t, os.Remove(filepath.Join(disk, "filler")))
	if got := does(t, "", "user", "ls", "--data", data); !strings.Contains(got, "ann") {
		t.Errorf("with room again: %s", got)
	}
}

func TestServerOnAReadOnlyDiskSaysSo(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	testenv.SmallDisk(t, disk, "size=4m,mode=0700")
	data := filepath.Join(disk, "data")
	does(t, "correct horse", "user", "add", "ann", "--data", data)
	testenv.Must(t, syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=4m,mode=0700"))
	for _, args := range [][]string{{"run", "--listen", "127.0.0.1:0"}, {"user", "ls"}, {"fsck"}, {"backup", disk + "/backup"}} {
		says(t, "read-only file system", append(args, "--data", data)...)
	}
	says(t, "read-only file system", "run", "--data", filepath.Join(disk, "new"))
}

// Nothing of a running server is changed by a second one, by a restore or by an import.
func TestRunningServerKeepsItsDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	flags := []string{"--data", dir}
	does(t, "correct horse", append([]string{"user", "add", "ann"}, flags...)...)
	backup := filepath.Join(t.TempDir(), "backup")
	does(t, "", append([]string{"backup", backup}, flags...)...)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	address, _, ended := serveAt(ctx, flags)
	says(t, "lock data directory "+dir+": another cl-server is using it", append([]string{"run", "--listen", "127.0.0.1:0"}, flags...)...)
	says(t, "the directory is not empty", append([]string{"restore", backup}, flags...)...)
	login(t, address, "ann", "correct horse")
	stop()
	ended()
}

// A second server, perhaps of a newer version, must not bring the database of a running one up to date.
func TestSecondServerDoesNotOpenTheDatabase(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, dir string, flags []string) {
		testenv.Must(t, os.MkdirAll(dir, 0o700))
		held, err := os.Create(filepath.Join(dir, "lock"))
		testenv.Must(t, errors.Join(err, syscall.Flock(int(held.Fd()), syscall.LOCK_EX)))
		says(t, "another cl-server is using it", append([]string{"run", "--listen", "127.0.0.1:0"}, flags...)...)
		if made, err := os.ReadDir(dir); err != nil || len(made) != 1 {
			t.Errorf("the second server has made %v, %v", made, err)
		}
		testenv.Must(t, held.Close())
	})
}
