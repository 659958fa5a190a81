package initproc

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// child is the process id of a child that this process has not waited for. An init uses it instead
// of an exec.Cmd, whose first start in a process starts another process to test the kernel's pidfds
// (os: checkPidfd), and stats each file that it passes.
type child int

// startChild starts a program with these arguments after its name.
func startChild(program string, args []string, attr *syscall.ProcAttr) (child, error) {
	pid, err := syscall.ForkExec(program, append([]string{program}, args...), attr)
	if err != nil {
		return 0, &os.PathError{Op: "fork/exec", Path: program, Err: err}
	}
	return child(pid), nil
}

// kill kills the child. It must not be called after wait.
func (c child) kill() error { return syscall.Kill(int(c), syscall.SIGKILL) }

// wait waits for the child's end, and returns the use of the child and of the processes that it waited for. It returns an error
// unless the child ended with status 0.
func (c child) wait() (container.Usage, error) {
	var status syscall.WaitStatus
	var used syscall.Rusage
	for {
		_, err := syscall.Wait4(int(c), &status, 0, &used)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return container.Usage{}, os.NewSyscallError("wait4", err)
		}
		break
	}
	usage := usageOf(&used)
	switch {
	case status.Signaled():
		return usage, fmt.Errorf("signal: %s", status.Signal())
	case status.ExitStatus() != 0:
		return usage, fmt.Errorf("exit status %d", status.ExitStatus())
	}
	return usage, nil
}

// usageOf returns the use of processes that have ended.
func usageOf(r *syscall.Rusage) container.Usage {
	return container.Usage{
		User:       time.Duration(r.Utime.Nano()),
		System:     time.Duration(r.Stime.Nano()),
		MemoryPeak: r.Maxrss * 1024, // getrusage(2): kilobytes
	}
}

// IsGone reports whether there is no such process, not even a zombie.
func IsGone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
