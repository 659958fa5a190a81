package testenv

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Process is a program that runs beside a test. Reading it returns what it
// prints on standard output, up to its end.
type Process struct {
	io.Reader
	cmd *exec.Cmd
}

// Again runs the program of the calling test once more, with these variables,
// NAME=VALUE, added to its environment: its TestMain sees from them that it is
// not to run tests. What still runs when the test ends is killed.
func Again(tb testing.TB, variables ...string) *Process {
	tb.Helper()
	self, err := os.Executable()
	must(tb, err)
	cmd := exec.CommandContext(tb.Context(), self) //nolint:gosec // this very program
	cmd.Env = append(os.Environ(), variables...)
	cmd.Stderr = tb.Output()
	out, err := cmd.StdoutPipe()
	must(tb, err)
	must(tb, cmd.Start())
	return &Process{Reader: out, cmd: cmd}
}

// Kill ends the process with SIGKILL. It does not wait for its end.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() } // one that has ended needs no killing

// Wait waits for the end, once everything was read. An end by SIGKILL is no
// error.
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
