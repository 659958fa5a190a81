package initproc

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// A command may have given its output to a process outside of its container, and the number of its file may be that of the next
// container's file.
func TestClosedOutputWritesToNoFile(t *testing.T) {
	t.Parallel()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "out"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	testenv.Must(t, err)
	defer func() { _ = f.Close() }()
	o, err := openOutput(int(f.Fd()), int(f.Fd()), nil)
	testenv.Must(t, err)
	outside, err := unix.Dup(o.fds[0])
	testenv.Must(t, err)
	defer func() { _ = unix.Close(outside) }()
	_, err = unix.Write(outside, []byte("before\n"))
	testenv.Must(t, err)
	if failed := o.flush(); failed != 0 {
		t.Fatal(failed)
	}
	o.close()
	_, err = unix.Write(outside, []byte("after\n"))
	testenv.Must(t, err)
	// The stream gives up its end of the pipe then.
	hasEnded := func() bool {
		ready := []unix.PollFd{{Fd: int32(outside)}}
		_, err := unix.Poll(ready, 0)
		return err == nil && ready[0].Revents&unix.POLLERR != 0
	}
	testenv.Await(t, "nobody reads the pipe", hasEnded)
	if got, err := os.ReadFile(f.Name()); err != nil || string(got) != "before\n" {
		t.Errorf("the file has %q, %v", got, err)
	}
}
