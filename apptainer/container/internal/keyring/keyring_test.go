package keyring

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLeftKeyringsKeysAreNotFound(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread() // never unlocked: the thread with these keyrings ends with the test
	if _, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0); errno == unix.ENOSYS {
		t.Skip("needs a kernel with keys")
	}
	key, err := unix.AddKey("user", "cl-slurm-test", []byte("precious"), unix.KEY_SPEC_SESSION_KEYRING)
	if err != nil {
		t.Fatal(err)
	}
	find := func() (int, error) {
		return unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", "cl-slurm-test", 0)
	}
	if found, err := find(); err != nil || found != key {
		t.Fatalf("found %d, %v; want %d", found, err, key)
	}
	if err := Leave(); err != nil {
		t.Fatal(err)
	}
	if found, err := find(); !errors.Is(err, unix.ENOKEY) {
		t.Errorf("after Leave found %d, %v", found, err)
	}
}
