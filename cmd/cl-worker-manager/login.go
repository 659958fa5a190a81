package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// login holds the user's name and password, and the file that passes them to workers.
type login struct {
	account.Login
	// file is the file from which workers read both. If kept is false it has yet to be written.
	file string
	kept bool
}

// findLogin returns the login of --password-file; or else that of CODALAB_USERNAME and CODALAB_PASSWORD; or
// else that of an earlier manager, from the work directory, unless workDir is empty; or else it prompts on the
// terminal.
func findLogin(ctx context.Context, p program.Process, server, passwordFile, workDir string) (*login, error) {
	if passwordFile != "" {
		path, err := filepath.Abs(passwordFile)
		if err != nil {
			return nil, err
		}
		l, err := account.ReadFile(path)
		return &login{Login: l, file: path, kept: true}, usage(err)
	}
	sum := sha256.Sum256([]byte(server))
	file := filepath.Join(workDir, ".password-"+hex.EncodeToString(sum[:4]))
	user := p.Getenv("CODALAB_USERNAME")
	if workDir != "" && (user == "" || p.Getenv("CODALAB_PASSWORD") == "") {
		kept, err := account.ReadFile(file)
		switch {
		case err == nil && cmp.Or(user, kept.User) == kept.User:
			return &login{Login: kept, file: file, kept: true}, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, usage(err)
		}
	}
	l, err := account.Find(ctx, p, "")
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return &login{Login: l, file: file}, usage(err)
}

// usage gives an error the exit code of a wrong command line.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return program.Usage(err)
}

// connect returns a client of a server. It sends nothing yet.
func (l *login) connect(server string) (*client.Client, error) {
	api, err := client.New(server, client.Options{ClientID: client.CommandClient, Credentials: l.Credentials})
	return api, usage(err)
}

// forWorker returns the login arguments for a worker without a token of its own. The manager calls it after
// the server has accepted the login. The arguments name the password file and never hold the password.
func (l *login) forWorker() ([]string, error) {
	if !l.kept {
		if err := atomicfile.Write(l.file, []byte(l.User+"\n"+l.Password+"\n"), 0o600); err != nil {
			return nil, fmt.Errorf("keep the password for the workers: %w", err)
		}
		l.kept = true
	}
	return []string{"--password-file", l.file}, nil
}
