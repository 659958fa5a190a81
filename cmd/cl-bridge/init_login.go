package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/doctor"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// login asks for server, user and password until the server lets the user in.
func (i *initiation) login(ctx context.Context) error {
	for n := 1; ; n++ {
		if err := i.askLogin(ctx); err != nil {
			return err
		}
		version, err := i.tryLogin(ctx)
		if err == nil {
			i.say("%s is a CodaLab server, version %s, and lets %s in\n", i.draft.Server, version, i.draft.User)
			return nil
		}
		said := doctor.Login(i.draft.User, err)
		reached := doctor.Server(i.draft.Server, version, err)
		if reached.Verdict == doctor.Failed {
			said = reached
		}
		var unread *program.Error
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &unread):
			return err
		case (i.silent || n == tries) && said.Away:
			return &program.Error{Code: program.ExitTransient, Err: errors.New(said.Found)}
		case i.silent || n == tries:
			return errors.New(said.Found)
		}
		i.say("%s\n", said.Found)
		if reached.Verdict == doctor.Failed {
			i.server = ""
		} else {
			i.user, i.passwordFile = "", ""
		}
	}
}

func (i *initiation) askLogin(ctx context.Context) error {
	var err error
	if i.server == "" {
		if err = i.askServer(ctx); err != nil {
			return err
		}
		i.password = ""
	}
	if i.user == "" {
		if i.user, err = i.ask(ctx, "Your user name there", cmp.Or(i.draft.User, doctor.LocalUser()), "--user"); err != nil {
			return err
		}
		i.password = ""
	}
	if i.passwordFile == "" && i.password == "" {
		if !i.silent && i.isThere(i.besideConfig) {
			return fmt.Errorf("%s is there already: --password-file uses it, and --force writes it anew", i.besideConfig)
		}
		if i.password, err = i.askPassword(ctx, "Password of "+i.user+" (it is not shown)"); err != nil {
			return err
		}
	}
	i.draft.Server, i.draft.User = strings.TrimRight(i.server, "/"), i.user
	return nil
}

// askServer asks for the server until somebody answers at its address, so that
// nobody types a password for a mistyped one.
func (i *initiation) askServer(ctx context.Context) error {
	for n := 1; ; n++ {
		server, err := i.ask(ctx, "Address of the CodaLab server, such as https://worksheets.example.org", i.draft.Server, "--server")
		if err != nil {
			return err
		}
		i.draft.Server = strings.TrimRight(server, "/")
		check := doctor.Reach(ctx, i.draft.Server, "codalab")
		if check.Verdict != doctor.Failed || n == tries {
			i.server = i.draft.Server
			return ctx.Err()
		}
		i.say("%s\n", check.Found)
	}
}

// tryLogin logs in with the password that was typed, or that is in the file.
func (i *initiation) tryLogin(ctx context.Context) (version string, err error) {
	i.draft.PasswordFile = i.besideConfig
	ask := func(context.Context) (string, string, error) { return i.draft.User, i.password, nil }
	if i.passwordFile != "" {
		path, err := filepath.Abs(i.passwordFile)
		if err != nil {
			return "", fmt.Errorf("find password_file: %w", err)
		}
		i.draft.PasswordFile = path
		ask = config.Config{User: i.draft.User, PasswordFile: path}.Credentials
		if _, _, err := ask(ctx); err != nil {
			return "", &program.Error{Code: program.ExitUsage, Err: err}
		}
	}
	cl, err := client.New(i.draft.Server, client.Options{ClientID: client.WorkerClient, Credentials: ask})
	if err != nil {
		return "", err
	}
	return cl.ServerVersion(ctx)
}
