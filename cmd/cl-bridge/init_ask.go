package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// asker asks a person, where there is a terminal.
type asker struct {
	program.Process
	// silent is set where nobody is to be asked.
	silent bool
}

func newAsker(p program.Process, silent bool) asker {
	in, ok := p.Stdin.(*os.File)
	return asker{p, silent || !ok || !term.IsTerminal(int(in.Fd()))}
}

// ask returns a person's answer, or what was suggested. Without a terminal that is
// the answer; where there is no suggestion the flag is needed.
func (a asker) ask(question, suggestion, flag string) (string, error) {
	if a.silent {
		if suggestion == "" {
			return "", &program.Error{Code: program.ExitUsage, Err: fmt.Errorf("%s is needed: there is nobody to ask", flag)}
		}
		return suggestion, nil
	}
	for {
		if suggestion == "" {
			a.say("%s: ", question)
		} else {
			a.say("%s [%s]: ", question, suggestion)
		}
		answer, err := a.readLine()
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

// askPassword returns what a person types and nobody sees.
func (a asker) askPassword(question string) (string, error) {
	in, ok := a.Stdin.(*os.File)
	if !ok || a.silent {
		return "", &program.Error{Code: program.ExitUsage, Err: errors.New("--password-file is needed: there is nobody to ask")}
	}
	for {
		a.say("%s: ", question)
		typed, err := term.ReadPassword(int(in.Fd()))
		a.say("\n")
		if err != nil {
			return "", fmt.Errorf("read password: %w", err)
		}
		if len(typed) > 0 {
			return string(typed), nil
		}
	}
}

// say prints to the person who is asked.
func (a asker) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Stdout, format, args...) // standard output is gone
}

// readLine reads a line and nothing of the next one, which may be a password.
func (a asker) readLine() (string, error) {
	var text []byte
	for one := make([]byte, 1); ; {
		n, err := a.Stdin.Read(one)
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
