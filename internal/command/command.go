// Package command starts programs.
//
// No other package starts programs, except those for containers (apptainer, subids). A program gets an
// argument vector, which no shell interprets, and an environment that the caller gives in full. An Error
// has the facts for an operator. Command waits for its program; the program of Detached outlives this
// process.
package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// stderrKept is the number of bytes of standard error that an Error keeps, from its end.
const stderrKept = 4096

const (
	// killDelay is the time between TERM, which a cancelled context sends to a program, and KILL.
	killDelay = 2 * time.Second
	// pipeDelay is the time for which Run waits after the end of a program until nobody has its output open. On a busy
	// machine, another child of this process may have it open for seconds, between fork and exec.
	pipeDelay = time.Minute
)

// Command describes one start of a program. The zero value of each field but
// Args is usable; a Command is a value and may be used again.
type Command struct {
	// Args is the argument vector. Args[0] is a path, or a name looked up in
	// the PATH of this process.
	Args []string
	// Env is the whole environment of the program; nil means an empty one.
	Env []string
	// Dir is the working directory; empty means that of this process.
	Dir string
	// Stdin is the program's input; nil means none.
	Stdin io.Reader
	// Stdout receives the program's output in Run; nil discards it.
	Stdout io.Writer
	// Stderr receives the program's standard error, for programs that talk to a person; the Error lacks
	// it then. If Stderr is nil, the Error has its end.
	Stderr io.Writer
	// Credential is the user the program runs as; nil means that of this
	// process.
	Credential *Credential
	// Group gives the program a process group of its own, for a program that starts others. When ctx
	// ends, the whole group gets KILL at once. A process of the group that still has the standard error
	// two seconds after the program's end gets KILL, too.
	Group bool
}

// Error is the failure of a program.
type Error struct {
	// Args is the argument vector.
	Args []string
	// ExitCode is the program's exit status, or -1 when it did not exit by
	// itself: it could not be started, or a signal ended it.
	ExitCode int
	// Stderr is the end of the program's standard error, at most 4 KiB, without surrounding white space.
	Stderr string
	// Err is the cause: an *exec.ExitError, the context's error, or the error of the start.
	Err error
}

// Error returns the program's name, the cause and the end of standard error.
func (e *Error) Error() string {
	name := "command"
	if len(e.Args) > 0 {
		name = e.Args[0]
	}
	if e.Stderr == "" {
		return fmt.Sprintf("%s: %v", name, e.Err)
	}
	return fmt.Sprintf("%s: %v: %s", name, e.Err, e.Stderr)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Started reports whether the program ran at all; if not, it had no effect.
func (e *Error) Started() bool {
	var exit *exec.ExitError
	return errors.As(e.Err, &exit) || errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded)
}

// stopped is the error of a program that was stopped because its context ended.
type stopped struct {
	after        time.Duration
	ctxErr, exit error
}

// Error includes the program's run time if a deadline stopped it.
func (s *stopped) Error() string {
	if errors.Is(s.ctxErr, context.DeadlineExceeded) {
		return fmt.Sprintf("not ended after %s, and stopped", s.after.Round(100*time.Millisecond))
	}
	return fmt.Sprintf("%v (%v)", s.ctxErr, s.exit)
}

func (s *stopped) Unwrap() []error { return []error{s.ctxErr, s.exit} }

// Run starts the program and waits for its end. When ctx ends first, the
// program gets TERM, two seconds later KILL (see Group), and the error wraps ctx's. If another process has
// the program's output open a minute after the program's end, Run fails with exec.ErrWaitDelay. Any failure is an
// *Error.
func (c Command) Run(ctx context.Context) error {
	if len(c.Args) == 0 {
		return &Error{ExitCode: -1, Err: errors.New("empty argument vector")}
	}
	tail := &tailWriter{max: stderrKept}
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Env = c.Env
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.Dir = c.Dir
	cmd.Stdin = c.Stdin
	cmd.Stdout = c.Stdout
	cmd.Stderr = tail
	if c.Stderr != nil {
		cmd.Stderr = c.Stderr
	}
	cmd.WaitDelay = pipeDelay
	cmd.Cancel = func() error {
		cmd.WaitDelay = killDelay // os/exec reads it afterwards (Cmd.watchCtx)
		return terminate(cmd.Process)
	}
	cmd.SysProcAttr = c.attributes()
	killGroup := func() error { return killGroupOf(cmd.Process) }
	if c.Group {
		cmd.WaitDelay = killDelay
		cmd.Cancel = killGroup
	}
	began := time.Now()
	err := cmd.Run()
	if c.Group && errors.Is(err, exec.ErrWaitDelay) { // some of the group still have the standard error
		err = errors.Join(err, killGroup())
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = &stopped{time.Since(began), ctx.Err(), err}
	}
	return &Error{
		Args:     c.Args,
		ExitCode: cmd.ProcessState.ExitCode(),
		Stderr:   strings.TrimSpace(tail.String()),
		Err:      err,
	}
}

// Output is Run, and returns the program's standard output, also with an error.
func (c Command) Output(ctx context.Context) ([]byte, error) {
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run(ctx)
	return out.Bytes(), err
}

// tailWriter keeps the last max bytes written to it.
type tailWriter struct {
	max int
	buf []byte
}

func (w *tailWriter) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	if over := len(w.buf) - w.max; over > 0 {
		w.buf = append(w.buf[:0], w.buf[over:]...)
	}
	return len(p), nil
}

func (w *tailWriter) String() string { return string(w.buf) }

// Find returns the path of a program in PATH. It starts nothing.
func Find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", program, err)
	}
	return path, nil
}
