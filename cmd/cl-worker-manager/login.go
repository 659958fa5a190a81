package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/spf13/pflag"

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
	// token returns the token of --token-file, with which the manager signs in; nil if it signs in with a password. Only
	// the server knows the user of a token.
	token func(context.Context) (string, error)
}

// loginFiles are the files of a manager's login. Each may be empty.
type loginFiles struct{ password, token string }

func (f *loginFiles) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.password, "password-file", "", "`file` with the user's name and password in two lines, which only you may read")
	flags.StringVar(&f.token, "token-file", "", "`file` with a token of cl-server token add --manager instead of a password, which only you may read")
}

// find returns the login of --token-file or --password-file; or else that of CODALAB_USERNAME and CODALAB_PASSWORD; or
// else that of an earlier manager, from the work directory, unless workDir is empty; or else it prompts on the
// terminal.
func (f *loginFiles) find(ctx context.Context, p program.Process, server, workDir string) (*login, error) {
	switch {
	case f.token != "" && f.password != "":
		return nil, program.Usage(errors.New("--token-file and --password-file: give one of them"))
	case f.token != "":
		read := func(context.Context) (string, error) { return account.ReadToken(f.token) }
		_, err := read(ctx)
		return &login{token: read}, usage(err)
	case f.password != "":
		path, err := filepath.Abs(f.password)
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

// connect returns a client of a server. It sends nothing yet. device may be nil.
func (l *login) connect(server string, device client.TokenCache) (*client.Client, error) {
	o := client.Options{ClientID: client.CommandClient, Token: l.token}
	if l.token == nil {
		o.Credentials, o.Tokens = l.Credentials, device
	}
	api, err := client.New(server, o)
	return api, usage(err)
}

// device keeps the manager's device token for a server.
func (m *manager) device(server string) client.TokenCache {
	return account.DeviceOf(m.Process, "cl-worker-manager", server)
}

// findUser asks the server for the user of a token. It waits for a server that does not answer, unless once is set.
func (l *login) findUser(ctx context.Context, api *client.Client, once bool, p program.Process, log *slog.Logger) (err error) {
	if l.User != "" {
		return nil
	}
	s := account.SignIn{Client: api, Server: api.Address(), Now: p.Now, Log: log}
	if once {
		s.GiveUp = p.Now()
	}
	l.User, err = s.Try(ctx)
	return err
}

// forWorker returns the login arguments for a worker without a token of its own. The manager calls it after
// the server has accepted the login. The arguments name the password file and never hold the password.
func (l *login) forWorker() ([]string, error) {
	if l.token != nil {
		return nil, errors.New("the workers get no tokens of their own, and must not have the manager's: start it with --password-file")
	}
	if !l.kept {
		if err := atomicfile.Write(l.file, []byte(l.User+"\n"+l.Password+"\n"), 0o600); err != nil {
			return nil, fmt.Errorf("keep the password for the workers: %w", err)
		}
		l.kept = true
	}
	return []string{"--password-file", l.file}, nil
}
