package testenv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
)

// Process is a program that a test has started. Its reader returns the standard output.
type Process struct {
	io.Reader
	// Input is its standard input, which also ends with this program.
	Input io.WriteCloser

	cmd     *exec.Cmd
	through []string // the words that reach its machine, if it is another one
	id      int      // its process id there
}

// Again starts the calling test's program again, with further variables of the form NAME=VALUE. The
// program's TestMain acts on them instead of running tests. The process is killed at the end of the
// test.
func Again(tb testing.TB, variables ...string) *Process {
	tb.Helper()
	self, err := os.Executable()
	Must(tb, err)
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
	Must(tb, err)
	in, err := cmd.StdinPipe()
	Must(tb, err)
	Must(tb, cmd.Start())
	return &Process{Reader: out, Input: in, cmd: cmd}
}

// AgainThrough is Again on another machine, with a copy of the program there. The words, such as ssh
// and the name of the machine, run a shell command there.
func AgainThrough(tb testing.TB, words []string, program string, variables ...string) *Process {
	tb.Helper()
	script := "env"
	for _, v := range variables {
		script += " '" + v + "'"
	}
	// The shell waits, so that it reports the program's end. Signals reach only the program.
	script += " " + program + " <&0 & echo $!; wait $!"
	cmd := exec.CommandContext(tb.Context(), words[0], append(slices.Clone(words[1:]), script)...)
	cmd.Stderr = tb.Output()
	out, err := cmd.StdoutPipe()
	Must(tb, err)
	in, err := cmd.StdinPipe()
	Must(tb, err)
	Must(tb, cmd.Start())
	p := &Process{Input: in, cmd: cmd, through: words}
	lines := bufio.NewReader(out)
	_, err = fmt.Fscanln(lines, &p.id)
	Must(tb, err)
	p.Reader = lines
	return p
}

// Signal sends it a signal, unless it has ended.
func (p *Process) Signal(s syscall.Signal) {
	if p.through == nil {
		_ = p.cmd.Process.Signal(s)
		return
	}
	_ = p.there(fmt.Sprintf("kill -%d %d", s, p.id))
}

// there runs a shell's command on the machine of the process.
func (p *Process) there(script string) error {
	return exec.Command(p.through[0], append(slices.Clone(p.through[1:]), script)...).Run() //nolint:wrapcheck // the test's own words
}

// Kill ends the process with SIGKILL. It does not wait for its end.
func (p *Process) Kill() { p.Signal(syscall.SIGKILL) }

// Stopped reports whether a signal has stopped the process.
func (p *Process) Stopped() bool {
	if p.through != nil {
		return p.there(fmt.Sprintf("grep -q ') T ' /proc/%d/stat", p.id)) == nil
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	return err == nil && bytes.Contains(stat, []byte(") T "))
}

// killedThere is a shell's exit status for a program that SIGKILL ended.
const killedThere = 128 + int(syscall.SIGKILL)

// Wait waits for the end of the process; read all of its output before. An end by SIGKILL is no error.
func (p *Process) Wait() error {
	err := p.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, ok := exit.Sys().(syscall.WaitStatus)
		if ok && (status.Signaled() && status.Signal() == syscall.SIGKILL || p.through != nil && status.ExitStatus() == killedThere) {
			return nil
		}
	}
	return err //nolint:wrapcheck // the caller knows which process
}

// Race starts n processes of this test program with one argument, each with its own variables. Each
// calls Ready, which returns in all processes at the same moment. Race returns the outputs of the
// processes. All have to succeed.
func Race(tb testing.TB, n int, argument string, variables func(i int) []string) []string {
	tb.Helper()
	self, err := os.Executable()
	Must(tb, err)
	stdin, start, err := os.Pipe()
	Must(tb, err)
	outputs, racers := make([]bytes.Buffer, n), make([]*exec.Cmd, n)
	for i := range racers {
		racers[i] = exec.CommandContext(tb.Context(), self, argument)
		racers[i].Env = variables(i)
		racers[i].Stdin, racers[i].Stdout, racers[i].Stderr = stdin, &outputs[i], os.Stderr
		Must(tb, racers[i].Start())
	}
	Must(tb, errors.Join(stdin.Close(), start.Close())) // Ready returns
	printed := make([]string, n)
	for i, r := range racers {
		Must(tb, r.Wait())
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
