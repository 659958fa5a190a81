package container_test

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// calls is a program that makes calls that a command must not make, and calls32 is the same for the
// 32-bit calls of this machine's kernel.
var (
	calls   = testenv.Program{Package: "./testdata/calls"}
	calls32 = testenv.Program{Package: "./testdata/calls", Architecture: map[string]string{"amd64": "386", "arm64": "arm"}[runtime.GOARCH]}
)

// This test leans on the filter of package seccomp alone: for most of these calls, the kernel has
// another answer.
func TestFidelityCallsThatDockerRefusesAreRefused(t *testing.T) {
	t.Parallel()
	const want = `bpf EPERM
clone3 ENOSYS
clone(CLONE_NEWUSER) EPERM
file_getattr ENOSYS
io_uring_enter EPERM
io_uring_register EPERM
io_uring_setup EPERM
kcmp EPERM
mount_setattr EPERM
move_pages EPERM
open_by_handle_at EPERM
open_tree EPERM
perf_event_open EPERM
personality(ADDR_NO_RANDOMIZE) EPERM
pidfd_getfd EPERM
process_madvise EPERM
setns EPERM
socket(AF_ALG) EPERM
socket(AF_VSOCK) EPERM
unshare(CLONE_NEWUSER) EPERM
unshare(0) EPERM
userfaultfd EPERM
`
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		files, compat := smallRoot(t), runs32BitPrograms(t)
		for name, program := range map[string]*testenv.Program{"bin/calls": &calls, "bin/calls32": &calls32} {
			if name == "bin/calls" || compat {
				content, err := os.ReadFile(program.Path(t))
				must(t, err)
				files = append(files, imagetest.Executable(name, string(content)))
			}
		}
		c := w.image(t, shellConfig(), files...)
		check := func(t *testing.T, program string) {
			t.Helper()
			run := c
			run.Args = []string{program}
			got, numa, _ := strings.Cut(w.shell(t, run), "get_mempolicy ")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the kernel's answers (-want +got):\n%s", diff)
			}
			if want := mempolicyHere(); !w.hasStore() && numa != want+"\n" { // an engine's own profile refuses it
				t.Errorf("get_mempolicy %swant %s", numa, want)
			}
		}
		check(t, "/bin/calls")
		t.Run("32-bit calls", func(t *testing.T) {
			if !compat {
				t.Skip("this kernel runs 64-bit programs only: it has no 32-bit calls to refuse")
			}
			check(t, "/bin/calls32")
		})
	})
}

// mempolicyHere returns what this machine's kernel answers to get_mempolicy: one that knows no NUMA has no such call.
func mempolicyHere() string {
	var mode int32
	if _, _, errno := unix.RawSyscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), 0, 0, 0, 0, 0); errno != 0 {
		return unix.ErrnoName(errno)
	}
	return "succeeds"
}
