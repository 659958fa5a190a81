package procstat_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/procstat"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestProcessIsReadUntilItIsWaitedFor(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	self, err := procstat.Read(os.Getpid())
	if err != nil || self.PID != os.Getpid() || self.Parent != os.Getppid() || self.Start == 0 || self.Resident == 0 || self.Ended() {
		t.Errorf("this process is %+v, %v", self, err)
	}
	child := exec.Command("sh", "-c", "read line")
	door, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	if s, err := procstat.Read(pid); err != nil || s.Parent != os.Getpid() || s.Ended() {
		t.Errorf("a child is %+v, %v", s, err)
	}
	_ = door.Close()
	_ = child.Wait()
	if s, err := procstat.Read(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that has been waited for is %+v, %v", s, err)
	}
}
