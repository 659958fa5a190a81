package dirstate_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/dirstate"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func stateOf(t *testing.T, dir string) dirstate.State {
	t.Helper()
	f, err := os.Open(dir)
	testenv.Must(t, err)
	defer func() { testenv.Must(t, f.Close()) }()
	s, err := dirstate.Of(f)
	testenv.Must(t, err)
	return s
}

// setNumber flips a bit of a directory's number (ioctl(2)).
func setNumber(dir string, get, set, bit uint) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	number, err := unix.IoctlGetUint32(int(f.Fd()), get)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), set, int(number)^int(bit))
	}
	if errors.Is(err, unix.ENOTTY) {
		err = errors.ErrUnsupported
	}
	return errors.Join(err, f.Close())
}

func TestEntriesChangeNothingButTheSize(t *testing.T) {
	t.Parallel()
	for _, parent := range []string{os.TempDir(), "/dev/shm"} { // a tmpfs
		dir, err := os.MkdirTemp(parent, "state-")
		testenv.Must(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		before := stateOf(t, dir)
		testenv.Must(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
		if stateOf(t, dir).WithoutSize() != before.WithoutSize() {
			t.Errorf("in %s an entry changes more than the size", parent)
		}
		testenv.Must(t, os.Chmod(dir, 0o750))
		if stateOf(t, dir).WithoutSize() == before.WithoutSize() {
			t.Errorf("in %s a mode changes the size alone", parent)
		}
	}
}

func TestWhatAProgramLeavesInAnEmptyDirectoryChangesItsState(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what    string
		change  func(dir string) error
		changed bool
	}{
		{"nothing", func(string) error { return nil }, false},
		{"times", func(dir string) error { return unix.Utimes(dir, make([]unix.Timeval, 2)) }, false},
		{"a file that is gone", func(dir string) error {
			name := filepath.Join(dir, "x")
			return errors.Join(os.WriteFile(name, nil, 0o600), os.Remove(name))
		}, false},
		{"a mode", func(dir string) error { return os.Chmod(dir, 0o750) }, true},
		{"a bit of the mode", func(dir string) error { return os.Chmod(dir, os.ModeSetgid|0o700) }, true},
		{"an attribute", func(dir string) error { return unix.Setxattr(dir, "user.left", []byte("text"), 0) }, true},
		{"an attribute that is gone", func(dir string) error {
			return errors.Join(unix.Setxattr(dir, "user.left", []byte("text"), 0), unix.Removexattr(dir, "user.left"))
		}, false},
		{"a list of access", func(dir string) error { // acl(5): user::rwx, user:1234:rwx, group::---, mask::rwx, other::---
			return unix.Setxattr(dir, "system.posix_acl_default", []byte("\x02\x00\x00\x00"+
				"\x01\x00\x07\x00\xff\xff\xff\xff"+"\x02\x00\x07\x00\xd2\x04\x00\x00"+"\x04\x00\x00\x00\xff\xff\xff\xff"+
				"\x10\x00\x07\x00\xff\xff\xff\xff"+"\x20\x00\x00\x00\xff\xff\xff\xff"), 0)
		}, true},
		{"a flag", func(dir string) error {
			const noDump = 0x40 // FS_NODUMP_FL
			return setNumber(dir, unix.FS_IOC_GETFLAGS, unix.FS_IOC_SETFLAGS, noDump)
		}, true},
		{"a version", func(dir string) error {
			const getVersion, setVersion = unix.FS_IOC_GETFLAGS - 'f'<<8 + 'v'<<8, unix.FS_IOC_SETFLAGS - 'f'<<8 + 'v'<<8
			return setNumber(dir, getVersion, setVersion, 1)
		}, true},
		{"many files that are gone, where a directory does not shrink", func(dir string) error {
			before, err := os.Stat(dir)
			for i := 0; i < 500 && err == nil; i++ {
				err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("a-long-name-of-a-file-%d", i)), nil, 0o600)
			}
			for i := 0; i < 500 && err == nil; i++ {
				err = os.Remove(filepath.Join(dir, fmt.Sprintf("a-long-name-of-a-file-%d", i)))
			}
			if after, failed := os.Stat(dir); err == nil && failed == nil && after.Size() == before.Size() {
				err = errors.ErrUnsupported
			}
			return err
		}, true},
	} {
		dir := t.TempDir()
		testenv.Must(t, os.Chmod(dir, 0o700))
		before := stateOf(t, dir)
		if err := test.change(dir); errors.Is(err, errors.ErrUnsupported) { // ENOTSUP, too
			t.Logf("%s: not on this disk: %v", test.what, err)
			continue
		} else if err != nil {
			t.Fatalf("%s: %v", test.what, err)
		}
		if changed := stateOf(t, dir) != before; changed != test.changed {
			t.Errorf("%s: changed %t, want %t", test.what, changed, test.changed)
		}
	}
}
