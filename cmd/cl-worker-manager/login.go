package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// login is the user's name and password, and how workers get them.
type login struct {
	user, password string
	// file is the file from which workers read both. If kept is false it has yet to be written.
	file string
	kept bool
}

// findLogin returns the login of --password-file; or else that of CODALAB_USERNAME and CODALAB_PASSWORD;
// or else the one that an earlier manager has kept in the work directory; or else what somebody enters
// on the terminal (codalab/worker/main.py: connect_to_codalab_server).
func findLogin(ctx context.Context, p program.Process, server, passwordFile, workDir string) (*login, error) {
	if passwordFile != "" {
		path, err := filepath.Abs(passwordFile)
		if err != nil {
			return nil, err
		}
		return readLogin(path)
	}
	sum := sha256.Sum256([]byte(server))
	l := &login{
		user: p.Getenv("CODALAB_USERNAME"), password: p.Getenv("CODALAB_PASSWORD"),
		file: filepath.Join(workDir, ".password-"+hex.EncodeToString(sum[:4])),
	}
	if l.user != "" && l.password != "" {
		return l, nil
	}
	kept, err := readLogin(l.file)
	switch {
	case err == nil && cmp.Or(l.user, kept.user) == kept.user:
		return kept, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return l, l.prompt(ctx, p, server)
}

// readLogin reads a file with the name and the password in two lines. It refuses one that others may read.
func readLogin(path string) (*login, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, program.Usage(fmt.Errorf("read the password: %w", err))
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, program.Usage(fmt.Errorf("the password file %s may be read by others: chmod 600 %[1]s", path))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, program.Usage(fmt.Errorf("read the password: %w", err))
	}
	lines := strings.SplitN(string(data), "\n", 3)
	l := &login{user: strings.TrimSpace(lines[0]), file: path, kept: true}
	if len(lines) > 1 {
		l.password = strings.TrimSpace(lines[1])
	}
	if l.user == "" || l.password == "" {
		return nil, program.Usage(fmt.Errorf("the password file %s needs two lines: the user's name, and the password", path))
	}
	return l, nil
}

// prompt asks for what is missing.
func (l *login) prompt(ctx context.Context, p program.Process, server string) error {
	stream, ok := p.Stdin.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(stream.Fd())) {
		return program.Usage(errors.New("no user name and password: give --password-file, or set CODALAB_USERNAME and CODALAB_PASSWORD"))
	}
	fd := int(stream.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return fmt.Errorf("ask for the password: %w", err)
	}
	// A read of a terminal does not end with ctx, so it has a goroutine of its own.
	answered := make(chan error, 1)
	go func() { answered <- l.ask(p, fd, server) }()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		_ = term.Restore(fd, before) // the terminal may have gone
		return ctx.Err()
	}
}

func (l *login) ask(p program.Process, fd int, server string) error {
	fmt.Fprintf(p.Stderr, "Requesting access at %s\n", server) //nolint:errcheck // a prompt
	if l.user == "" {
		fmt.Fprint(p.Stderr, "Username: ") //nolint:errcheck // a prompt
		name, err := readLine(p.Stdin)
		if err != nil {
			return fmt.Errorf("read user name: %w", err)
		}
		l.user = strings.TrimSpace(name)
	}
	fmt.Fprint(p.Stderr, "Password: ") //nolint:errcheck // a prompt
	secret, err := term.ReadPassword(fd)
	fmt.Fprintln(p.Stderr) //nolint:errcheck // a prompt
	l.password = string(secret)
	if err != nil {
		return fmt.Errorf("read password: %w", err)
	}
	return nil
}

// readLine reads one line and no more: the password follows it.
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

// connect returns a client of a server. It sends nothing yet.
func (l *login) connect(server string) (*client.Client, error) {
	api, err := client.New(server, client.Options{
		ClientID:    client.CommandClient,
		Credentials: func(context.Context) (string, string, error) { return l.user, l.password, nil },
	})
	if err != nil {
		return nil, program.Usage(err)
	}
	return api, nil
}

// credentials are the arguments by which a worker logs in. The manager calls it for each worker, after
// the server has accepted the login. The password itself is in no argument.
func (l *login) credentials(context.Context) ([]string, error) {
	if !l.kept {
		if err := atomicfile.Write(l.file, []byte(l.user+"\n"+l.password+"\n"), 0o600); err != nil {
			return nil, fmt.Errorf("keep the password for the workers: %w", err)
		}
		l.kept = true
	}
	return []string{"--password-file", l.file}, nil
}
