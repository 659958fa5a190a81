package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// asker asks a person at a terminal.
type asker struct {
	in  io.Reader
	out io.Writer
	// silent is set without a terminal, and with --yes.
	silent bool
}

func newAsker(in io.Reader, out io.Writer, silent bool) asker {
	f, ok := in.(*os.File)
	return asker{in, out, silent || !ok || !term.IsTerminal(int(f.Fd()))}
}

// ask returns a person's answer, or the suggestion in place of an empty one. A silent
// asker returns the suggestion; without one it fails and names the flag to use. It
// ends with ctx; as nothing interrupts a read of a terminal, the program must not read the
// terminal again after that.
func (a asker) ask(ctx context.Context, question, suggestion, flag string) (string, error) {
	if a.silent {
		if suggestion == "" {
			return "", &UsageError{fmt.Errorf("%s is needed: there is nobody to ask", flag)}
		}
		return suggestion, nil
	}
	for {
		if suggestion == "" {
			a.say("%s: ", question)
		} else {
			a.say("%s [%s]: ", question, suggestion)
		}
		answer, err := background.Call(ctx, a.readLine)
		if err != nil {
			return "", err
		}
		if answer != "" {
			return answer, nil
		}
		if suggestion != "" {
			return suggestion, nil
		}
	}
}

// askPassword returns what a person types; the terminal does not show it. It ends with
// ctx, and leaves the terminal as it was.
func (a asker) askPassword(ctx context.Context, question string) (string, error) {
	in, ok := a.in.(*os.File)
	if !ok || a.silent {
		return "", &UsageError{errors.New("--token-file or --password-file is needed: there is nobody to ask")}
	}
	fd := int(in.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	for {
		a.say("%s: ", question)
		password, err := background.Call(ctx, func() ([]byte, error) { return term.ReadPassword(fd) })
		a.say("\n")
		if err != nil {
			return "", fmt.Errorf("read password: %w", errors.Join(err, term.Restore(fd, before)))
		}
		if len(password) > 0 {
			return string(password), nil
		}
	}
}

// say prints to the person.
func (a asker) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.out, format, args...) // standard output is gone
}

// readLine reads a line and nothing of the next one, which may be a password.
func (a asker) readLine() (string, error) {
	var text []byte
	for one := make([]byte, 1); ; {
		n, err := a.in.Read(one)
		switch {
		case n == 1 && one[0] == '\n', errors.Is(err, io.EOF) && len(text) > 0:
			return strings.TrimSpace(string(text)), nil
		case err != nil:
			return "", fmt.Errorf("read answer: %w", err)
		case n == 1:
			text = append(text, one[0])
		}
	}
}
