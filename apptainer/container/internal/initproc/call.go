package initproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// CallError is the failure of a program after its start.
type CallError struct {
	ExitCode int    // -1 if it did not exit by itself
	Message  string // the last message in its output
	Err      error
}

// Error returns the program's message, or the cause if there is none.
func (e *CallError) Error() string {
	if e.Message == "" {
		return e.Err.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Err }

// NewCmd prepares a program of the host with exactly this environment.
func NewCmd(args, env []string) *exec.Cmd {
	if env == nil {
		env = []string{}
	}
	return &exec.Cmd{Path: args[0], Args: args, Env: env, Dir: "/"}
}

// outputWait limits the reading of a program's output after its end. A process that it left
// running, such as an engine's daemon, may hold the output open for ever.
const outputWait = time.Second

// Call runs such a program to its end, and kills it at the end of ctx. It returns the program's
// output. A failure after its start is a *CallError.
func Call(ctx context.Context, args, env []string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := NewCmd(args, env)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, outputWait
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start %s: %w", args[0], err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err := cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", &CallError{ExitCode: cmd.ProcessState.ExitCode(), Message: LastMessage(stderr.String()), Err: err}
	}
	return strings.TrimSpace(stdout.String()), nil
}

// LastMessage returns the last message in a program's output. It is the last line or, if Apptainer
// or Docker put a level such as FATAL before a message of several lines, that message without the
// level.
func LastMessage(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	for i, line := range slices.Backward(lines) {
		for _, level := range []string{"FATAL:", "ERROR:", "Error:", "docker:"} {
			if rest, ok := strings.CutPrefix(line, level); ok {
				return strings.Join(append([]string{strings.TrimSpace(rest)}, lines[i+1:]...), " ")
			}
		}
	}
	return lines[len(lines)-1]
}
