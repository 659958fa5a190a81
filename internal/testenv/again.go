package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Process is a program that runs beside a test. A reader gets its standard output.
type Process struct {
	io.Reader
	// Input is its standard input, which also ends with this program.
	Input io.WriteCloser

	cmd *exec.Cmd
}

// Again starts the program of the calling test again, with further variables of the
// form NAME=VALUE. They tell its TestMain what to do in place of tests. The process is
// killed when the test ends.
func Again(tb testing.TB, variables ...string) *Process {
	tb.Helper()
	self, err := os.Executable()
	must(tb, err)
	return AgainAs(tb, self, nil, variables...)
}

// AgainAs is Again for another user, with a copy of the program that this user may run
// (CopyProgram). A nil credential means the test's own user.
func AgainAs(tb testing.TB, program string, as *syscall.Credential, variables ...string) *Process {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), program)
	if as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	}
	cmd.Env = append(os.Environ(), variables...)
	cmd.Stderr = tb.Output()
	out, err := cmd.StdoutPipe()
	must(tb, err)
	in, err := cmd.StdinPipe()
	must(tb, err)
	must(tb, cmd.Start())
	return &Process{Reader: out, Input: in, cmd: cmd}
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends it a signal, unless it has ended.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Kill ends the process with SIGKILL. It does not wait for its end.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() } // unless it has ended

// Wait waits for the end of the process, whose output has to be read before. An end by
// SIGKILL is no error.
func (p *Process) Wait() error {
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	return err //nolint:wrapcheck // the caller knows which process
}

// Race starts n processes of this test program with one argument, each with its own
// variables. Each calls Ready, which returns in all processes at the same moment. Race
// returns what each process printed. All have to succeed.
func Race(tb testing.TB, n int, argument string, variables func(i int) []string) []string {
	tb.Helper()
	self, err := os.Executable()
	must(tb, err)
	stdin, start, err := os.Pipe()
	must(tb, err)
	outputs, racers := make([]bytes.Buffer, n), make([]*exec.Cmd, n)
	for i := range racers {
		racers[i] = exec.CommandContext(tb.Context(), self, argument) //nolint:gosec // the program of this test
		racers[i].Env = variables(i)
		racers[i].Stdin, racers[i].Stdout, racers[i].Stderr = stdin, &outputs[i], os.Stderr
		must(tb, racers[i].Start())
	}
	must(tb, errors.Join(stdin.Close(), start.Close())) // Ready returns
	printed := make([]string, n)
	for i, r := range racers {
		must(tb, r.Wait())
		printed[i] = outputs[i].String()
	}
	return printed
}

// Ready waits, in a process of Race, for all the others.
func Ready() error {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	return nil
}
