package cache_test

import (
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// openFile makes an empty file there and opens it.
func openFile(t *testing.T, path string, mode os.FileMode, gid int) *os.File {
	t.Helper()
	err := os.WriteFile(path, nil, 0o600)
	if err = errors.Join(err, os.Chown(path, -1, gid), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Two members of the group, one of whom is also in another group, try to read the files that
// MayShare, as root, allows.
func TestFileMayBeSharedWhenEachOfTheGroupMayReadIt(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be two other users")
	}
	parent := testenv.SharedDir(t)
	c := open(t, groupDir(t, parent), cache.Options{Group: true})
	const other = group + 1
	for name, test := range map[string]struct {
		dir, file       os.FileMode
		dirGID, fileGID int
		access          string // an access list of the file (linux/posix_acl_xattr.h)
		want            bool
	}{
		"everybody's":                        {dir: 0o755, file: 0o644, want: true},
		"its owner's":                        {dir: 0o755, file: 0o600},
		"the group's":                        {dir: 0o755, file: 0o640, fileGID: group, want: true},
		"the group's, in a directory of its": {dir: 0o750, dirGID: group, file: 0o640, fileGID: group, want: true},
		"another group's":                    {dir: 0o755, file: 0o640, fileGID: other},
		"all but another group's":            {dir: 0o755, file: 0o604, fileGID: other},
		"everybody's, in a closed directory": {dir: 0o700, file: 0o644},
		"in a directory of another group":    {dir: 0o710, dirGID: other, file: 0o644},
		// user::rw-, group::---, mask::r--, other::---: its mode is 0640.
		"closed to its group by a list": {
			dir: 0o755, file: 0o640, fileGID: group,
			access: "02000000" + "01000600ffffffff" + "04000000ffffffff" + "10000400ffffffff" + "20000000ffffffff",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp(parent, "files-")
			if err = errors.Join(err, os.Chown(dir, -1, test.dirGID), os.Chmod(dir, test.dir)); err != nil {
				t.Fatal(err)
			}
			f := openFile(t, filepath.Join(dir, "f"), test.file, test.fileGID)
			if test.access != "" {
				list, err := hex.DecodeString(test.access)
				if err = errors.Join(err, unix.Setxattr(f.Name(), "system.posix_acl_access", list, 0)); err != nil {
					t.Skip("a disk without access lists: ", err)
				}
			}
			read := 0
			for _, groups := range [][]uint32{{group}, {group, other}} {
				cat := exec.CommandContext(t.Context(), "cat", f.Name())
				cat.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 60001, Gid: 60001, Groups: groups}}
				if cat.Run() == nil {
					read++
				}
			}
			if got := c.MayShare(f); got != test.want || (read == 2) != test.want {
				t.Errorf("may be shared: %v, want %v; %d of 2 members read it", got, test.want, read)
			}
		})
	}
}

func TestFileMayBeInACacheOfOnesOwnWhoeverMayReadIt(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir(), cache.Options{})
	if !c.MayShare(openFile(t, filepath.Join(t.TempDir(), "f"), 0o600, -1)) {
		t.Error("one's own file may not be shared with nobody")
	}
}
