package sharedfiles

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/internal/linkonce"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestSharedDiskThatIsNotMountedIsNotTakenForAnEmptyOne(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	layout := spool.Layout(t.TempDir())
	if err := Prepare(config.Config{}, layout, 3); err == nil || !strings.Contains(err.Error(), "is its disk mounted?") {
		t.Errorf("an empty directory for a ledger with bundles: %v", err)
	}
	if entries, err := os.ReadDir(string(layout)); err != nil || len(entries) > 0 {
		t.Errorf("made %v, %v", entries, err)
	}
	for _, bundles := range []int{0, 3} {
		if err := Prepare(config.Config{}, layout, bundles); err != nil {
			t.Errorf("with %d bundles: %v", bundles, err)
		}
	}
}

// withoutLinks calls do in a thread for which link(2) answers as on a disk without hard links, such as
// FAT (fs/namei.c: vfs_link). The thread ends with the call.
func withoutLinks(errno unix.Errno, do func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the filter goes with the thread
		program := []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // seccomp_data.nr
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_LINKAT, Jf: 1},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		}
		filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0)
		}
		if err == nil {
			do()
		}
		done <- err
	}()
	return <-done
}

func TestBridgeDoesNotStartOnADiskWithoutLinks(t *testing.T) {
	t.Parallel()
	layout := spool.Layout(t.TempDir())
	for errno, unfit := range map[unix.Errno]bool{unix.EPERM: true, unix.EOPNOTSUPP: true, unix.EIO: false} {
		var err error
		if failure := withoutLinks(errno, func() { err = Prepare(config.Config{}, layout, 0) }); failure != nil {
			t.Fatal(failure)
		}
		switch {
		case !unfit && err != nil:
			t.Errorf("on a disk that fails for now: %v", err)
		case unfit && (!errors.Is(err, linkonce.ErrUnfit) || !strings.Contains(err.Error(), "it has no hard links") || !strings.HasSuffix(err.Error(), "; "+OtherDisk)):
			t.Errorf("link(2) answers %v: %v", errno, err)
		}
	}
	if err := Prepare(config.Config{}, layout, 0); err != nil {
		t.Errorf("with links: %v", err)
	}
}
