//go:build unix

package command

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// Credential is a user of the system.
type Credential = syscall.Credential

func (c Command) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: c.Credential, Setpgid: c.Group}
}

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

func killGroupOf(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

// Killed reports whether SIGKILL ended the program, as the kernel does when memory is
// short.
func (e *Error) Killed() bool {
	var exit *exec.ExitError
	if !errors.As(e.Err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
