package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// callError is how a program of the host's failed.
type callError struct {
	status int // its exit status, or -1
	said   string
	cause  error
}

func (e *callError) Error() string {
	if e.said == "" {
		return e.cause.Error()
	}
	return e.said
}

func (e *callError) Unwrap() error { return e.cause }

// program is a start of a program of the host's, in an environment that is
// given in full.
func program(args, env []string) *exec.Cmd {
	if env == nil {
		env = []string{}
	}
	return &exec.Cmd{Path: args[0], Args: args, Env: env, Dir: "/"}
}

// outputWait is how long what a program has printed may stay unread once it has
// ended: something that it left running may hold its output open for ever.
const outputWait = time.Second

// call runs such a program to its end, and kills it at the end of ctx. It
// returns what it printed; a failure after its start is a *callError with the
// last line that it said.
func call(ctx context.Context, args, env []string) (string, error) {
	var out, said bytes.Buffer
	cmd := program(args, env)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &said, outputWait
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
		return "", &callError{status: cmd.ProcessState.ExitCode(), said: lastLine(said.String()), cause: err}
	}
	return strings.TrimSpace(out.String()), nil
}
