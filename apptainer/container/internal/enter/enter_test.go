package enter

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// afterPrepare is the argument with which this program prepares a command, and then makes calls that
// the command must not make. It runs in another process, because prepare cannot be undone.
const afterPrepare = "calls-after-prepare"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == afterPrepare {
		_, err := (&entered{Spec: Spec{Args: []string{"true"}, Dir: "/"}}).prepare()
		fmt.Print(err, ", ", useKeys(), ", ", unix.Unshare(0))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// useKeys asks the kernel for the session keyring.
func useKeys() unix.Errno {
	session := unix.KEY_SPEC_SESSION_KEYRING
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, uintptr(session), 0)
	return errno
}

// A runtime that starts with privileges (setuid), or an engine, runs the command as a child of this
// package's process, not of initproc's, which would take the privileges from the runtime.
func TestCommandInsideIsConfined(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), self, afterPrepare).CombinedOutput()
	if want := fmt.Sprint("<nil>, ", unix.ENOSYS, ", ", unix.EPERM); err != nil || string(output) != want {
		t.Errorf("the error of prepare and the kernel's answers are %q (%v), want %q", output, err, want)
	}
}
