package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// login asks for server, user and password until the server lets the user in.
func (s *session) login(ctx context.Context) error {
	for n := 1; ; n++ {
		if err := s.askLogin(ctx); err != nil {
			return err
		}
		version, err := s.tryLogin(ctx)
		if err == nil {
			s.say("%s is a CodaLab server, version %s, and lets %s in\n", s.draft.Server, version, s.draft.User)
			return nil
		}
		said := doctor.Login(s.draft.User, err)
		reached := doctor.Server(s.draft.Server, version, err)
		if reached.Verdict == doctor.Failed {
			said = reached
		}
		var unread *UsageError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &unread):
			return err
		case (s.silent || n == tries) && said.Unreachable:
			return &OutageError{errors.New(said.Found)}
		case s.silent || n == tries:
			return errors.New(said.Found)
		}
		s.say("%s\n", said.Found)
		if reached.Verdict == doctor.Failed {
			s.Server = ""
		} else {
			s.User, s.PasswordFile = "", ""
		}
	}
}

func (s *session) askLogin(ctx context.Context) error {
	var err error
	if s.Server == "" {
		if err = s.askServer(ctx); err != nil {
			return err
		}
		s.password = ""
	}
	if s.User == "" {
		if s.User, err = s.ask(ctx, "Your user name there", cmp.Or(s.draft.User, doctor.LocalUser()), "--user"); err != nil {
			return err
		}
		s.password = ""
	}
	if s.PasswordFile == "" && s.password == "" {
		if !s.silent && s.isThere(s.besideConfig) {
			return fmt.Errorf("%s is there already: --password-file uses it, and --force writes it anew", s.besideConfig)
		}
		if s.password, err = s.askPassword(ctx, "Password of "+s.User+" (it is not shown)"); err != nil {
			return err
		}
	}
	s.draft.Server, s.draft.User = strings.TrimRight(s.Server, "/"), s.User
	return nil
}

// askServer asks for the server's address until a server answers there, so that nobody types
// a password for a mistyped address.
func (s *session) askServer(ctx context.Context) error {
	for n := 1; ; n++ {
		server, err := s.ask(ctx, "Address of the CodaLab server, such as https://worksheets.example.org", s.draft.Server, "--server")
		if err != nil {
			return err
		}
		s.draft.Server = strings.TrimRight(server, "/")
		check := doctor.Reach(ctx, s.draft.Server, "codalab")
		if check.Verdict != doctor.Failed || n == tries {
			s.Server = s.draft.Server
			return ctx.Err()
		}
		s.say("%s\n", check.Found)
	}
}

// tryLogin logs in with the password that was typed, or that is in the file.
func (s *session) tryLogin(ctx context.Context) (version string, err error) {
	s.draft.PasswordFile = s.besideConfig
	ask := func(context.Context) (string, string, error) { return s.draft.User, s.password, nil }
	if s.PasswordFile != "" {
		path, err := filepath.Abs(s.PasswordFile)
		if err != nil {
			return "", fmt.Errorf("find password_file: %w", err)
		}
		s.draft.PasswordFile = path
		ask = config.Config{User: s.draft.User, PasswordFile: path}.Credentials
		if _, _, err := ask(ctx); err != nil {
			return "", &UsageError{err}
		}
	}
	cl, err := client.New(s.draft.Server, client.Options{ClientID: client.WorkerClient, Credentials: ask})
	if err != nil {
		return "", err
	}
	return cl.ServerVersion(ctx)
}
