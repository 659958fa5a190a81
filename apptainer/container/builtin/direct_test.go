package builtin

import (
	"errors"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/firstproc"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// Such a container runs again, by bubblewrap (initproc.Kept).
func TestFirstProcessThatEndsBeforeTheCommandIsTheHostsFault(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := &firstproc.Setup{}
	defer s.Close()
	s.Call("wait", unix.SYS_PPOLL) // for ever
	first, err := s.Start(firstproc.Command{Programs: []string{"/bin/true"}, Args: []string{"true"}, Files: [3]uintptr{0, 1, 2}}, unix.CLONE_NEWNS)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if err := unix.Kill(first.PID, unix.SIGSEGV); err != nil { // it has all signals blocked
		t.Fatal(err)
	}
	if err := unix.Kill(first.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(first.PID, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	deaths := make(chan initproc.Death, 1)
	deaths <- initproc.Death{PID: first.PID, Status: status}
	d := &direct{containerInit: &containerInit{process: &initproc.Process{Deaths: deaths}}}
	code, err := d.await(first)
	if host, ok := errors.AsType[*container.HostError](err); !ok || code != 0 {
		t.Errorf("code %d, %v (%v), want the host's fault", code, err, host)
	}
}

func TestProgramsAreThoseOfExecvp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path string
		want       []string
	}{
		{"", "/bin", nil},
		{"a/b", "/bin", []string{"a/b"}},
		{"a", "/x/../bin:/y/::.", []string{"/x/../bin/a", "/y//a", "a", "./a"}},
		{"a", "", []string{"a"}},
	} {
		if got := programs(tt.name, []string{"PATH=/other", "PATH=" + tt.path}); !slices.Equal(got, tt.want) {
			t.Errorf("%q in %q: %q, want %q", tt.name, tt.path, got, tt.want)
		}
	}
	if got := programs("a", nil); !slices.Equal(got, []string{"/bin/a", "/usr/bin/a"}) {
		t.Errorf("without PATH: %q", got)
	}
}
