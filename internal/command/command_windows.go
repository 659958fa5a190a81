package command

import (
	"os"
	"syscall"
)

// Credential is a user of the system. Windows starts no program as another user.
type Credential struct{}

func (Command) attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func terminate(p *os.Process) error { return p.Kill() }

// killGroupOf ends only the program: Windows has no process groups.
func killGroupOf(p *os.Process) error { return p.Kill() }

// Killed reports false: there are no signals.
func (*Error) Killed() bool { return false }
