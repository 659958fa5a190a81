// Package account finds the CodaLab server and the login of a program that works for a user. cl has its own
// rules for both, and uses the same prompts.
package account

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
)

// Server returns the server's address: that of the flag --server, else CODALAB_SERVER, else the one that cl
// uses. As with cl, an alias may stand for an address (cl alias). The error of a missing address names these
// three sources.
func Server(p program.Process, flag string) (string, error) {
	var config struct {
		Aliases map[string]any `json:"aliases"`
		CLI     struct {
			DefaultAddress string `json:"default_address"`
		} `json:"cli"`
	}
	var state struct {
		Sessions map[string]struct {
			Address string `json:"address"`
		} `json:"sessions"`
	}
	readJSON(p, "config.json", &config)
	readJSON(p, "cl-state.json", &state)
	session := state.Sessions[cmp.Or(p.Getenv("CODALAB_SESSION"), "default")]
	named := cmp.Or(flag, p.Getenv("CODALAB_SERVER"), p.Getenv("CL_SERVER"), session.Address, config.CLI.DefaultAddress)
	if address, ok := config.Aliases[named].(string); ok && address != "" {
		named = address
	}
	if named == "" {
		return "", errors.New("no server: name it with --server http://HOST:PORT, or set CODALAB_SERVER, or choose one with cl work")
	}
	return strings.TrimRight(named, "/"), nil
}

// readJSON reads a file of cl's directory. It ignores a file that it cannot read.
func readJSON(p program.Process, name string, v any) {
	dir := p.Getenv("CODALAB_HOME")
	if home := p.Getenv("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".codalab")
	}
	if data, err := os.ReadFile(filepath.Join(dir, name)); dir != "" && err == nil {
		_ = json.Unmarshal(data, v)
	}
}

// Login is a user's name and password.
type Login struct{ User, Password string }

// Credentials returns the login, for a client.
func (l Login) Credentials(context.Context) (user, password string, err error) {
	return l.User, l.Password, nil
}

// ReadFile reads a password file: a line with the name and a line with the password
// (codalab/worker/main.py: connect_to_codalab_server). It refuses a file that others may read.
func ReadFile(path string) (Login, error) {
	text, err := readPrivate("password", path)
	if err != nil {
		return Login{}, err
	}
	name, rest, _ := strings.Cut(text, "\n")
	password, _, _ := strings.Cut(rest, "\n")
	l := Login{User: strings.TrimSpace(name), Password: strings.TrimSpace(password)}
	if l.User == "" || l.Password == "" {
		return Login{}, fmt.Errorf("the password file %s has to have two lines: the user's name and the password", path)
	}
	return l, nil
}

// ReadToken reads a token file: a line with a worker token or a program token. It refuses a file that others may read, and a
// part of a program token.
func ReadToken(path string) (string, error) {
	token, err := ReadSecret("token", path)
	if err != nil {
		return "", err
	}
	if err := CheckToken(token); err != nil {
		return "", fmt.Errorf("the token file %s: %w", path, err)
	}
	return token, nil
}

// CheckToken refuses a part of a program token.
func CheckToken(token string) error {
	if !codalab.IsProgramToken(token) {
		return nil
	}
	_, err := codalab.ProgramTokenID(token)
	return err
}

// ReadSecret reads a file with one word, which is a secret of some kind, such as "token". It refuses a file that others
// may read.
func ReadSecret(kind, path string) (string, error) {
	text, err := readPrivate(kind, path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(text)
	if secret == "" || strings.ContainsAny(secret, " \t\r\n") {
		return "", fmt.Errorf("the %s file %s has to have one line: the %s", kind, path, kind)
	}
	return secret, nil
}

// readPrivate reads a file with a secret of some kind. It refuses one that others may read or replace.
func readPrivate(kind, path string) (string, error) {
	read := strictmodes.ReadOwnSecret
	if strictmodes.Alone(os.Getenv) {
		read = strictmodes.ReadSecret
	}
	data, err := read(kind, path)
	return string(data), err
}

// Find returns the login: that of passwordFile unless it is empty, else of CODALAB_USERNAME and
// CODALAB_PASSWORD. It prompts on a terminal for a missing name or password.
func Find(ctx context.Context, p program.Process, passwordFile string) (Login, error) {
	if passwordFile != "" {
		return ReadFile(passwordFile)
	}
	l := Login{User: p.Getenv("CODALAB_USERNAME"), Password: p.Getenv("CODALAB_PASSWORD")}
	if l.User != "" && l.Password != "" {
		return l, nil
	}
	in, isFile := p.Stdin.(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return Login{}, errors.New("no user name and password: name a file that has them with --password-file, set CODALAB_USERNAME and CODALAB_PASSWORD, or start on a terminal")
	}
	err := l.askUntil(ctx, p.Stderr, in)
	return l, err
}

// askUntil is Ask, and returns when ctx ends.
func (l *Login) askUntil(ctx context.Context, out io.Writer, in *os.File) error {
	before, err := term.GetState(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("ask for the login: %w", err)
	}
	var failed error
	asked := background.Go(func() { failed = l.Ask(out, in) })
	select {
	case <-ctx.Done(): // the program ends; a read of a terminal does not
		_ = term.Restore(int(in.Fd()), before)
		return ctx.Err()
	case <-asked:
		return failed
	}
}

// Terminal is a terminal to read from.
type Terminal interface {
	io.Reader
	Fd() uintptr
}

// Ask prompts on a terminal for a missing name or password, and does not echo the password. It blocks until
// the user has answered; a program that ends before must restore the terminal (term.GetState).
func (l *Login) Ask(out io.Writer, in Terminal) error {
	if l.User == "" {
		_, _ = fmt.Fprint(out, "Username: ") // a terminal
		line, err := readLine(in)
		if err != nil {
			return fmt.Errorf("ask for the user name: %w", err)
		}
		l.User = strings.TrimSpace(line)
	}
	if l.Password == "" {
		var err error
		if l.Password, err = AskSecret(out, in, "Password: "); err != nil {
			return err
		}
	}
	return nil
}

// AskSecret prompts on a terminal for a secret, and does not echo it. It blocks as Ask does.
func AskSecret(out io.Writer, in Terminal, prompt string) (string, error) {
	_, _ = fmt.Fprint(out, prompt) // a terminal
	secret, err := term.ReadPassword(int(in.Fd()))
	_, _ = fmt.Fprintln(out) // a terminal
	if err != nil {
		return "", fmt.Errorf("ask for the password: %w", err)
	}
	return string(secret), nil
}

// readLine reads one line and no more: the password may follow it.
func readLine(r io.Reader) (string, error) {
	var line []byte
	for b := []byte{0}; ; {
		if _, err := io.ReadFull(r, b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}
