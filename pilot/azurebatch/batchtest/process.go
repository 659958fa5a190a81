package batchtest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Split splits a task's command line into words, at spaces outside of single and double quotes. No sign has a special
// meaning in quotes.
func Split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quote, inWord := rune(0), false
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ':
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	if quote != 0 || len(words) == 0 {
		return nil, fmt.Errorf("the command line %q has no program or an open quote", line)
	}
	return words, nil
}

// killAfter is the time between TERM and KILL of a task that is ended.
const killAfter = 30 * time.Second

// Processes returns an Execute that runs each task's command as a process on this machine: with the task's variables
// and env, in dir, outside of any container. A task that is ended gets TERM.
func Processes(dir string, env ...string) func(ctx context.Context, r Run) int {
	return func(ctx context.Context, r Run) int {
		words, err := Split(r.CommandLine)
		if err != nil {
			_, _ = fmt.Fprintln(r.Stderr, err)
			return 127
		}
		c := exec.CommandContext(ctx, words[0], words[1:]...)
		c.Dir, c.Env, c.Stdout, c.Stderr = dir, append(env, r.Env...), r.Stdout, r.Stderr
		c.Cancel = func() error {
			if errors.Is(context.Cause(ctx), errNodeLost) {
				return c.Process.Kill()
			}
			return c.Process.Signal(syscall.SIGTERM)
		}
		c.WaitDelay = killAfter
		err = c.Run()
		var exit *exec.ExitError
		switch {
		case err == nil:
			return 0
		case errors.As(err, &exit):
			return exit.ExitCode()
		}
		_, _ = fmt.Fprintln(r.Stderr, err)
		return 127
	}
}
