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
	"github.com/cl-slurm/cl-slurm/codalab"
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
			s.User, s.PasswordFile, s.TokenFile = "", "", ""
		}
	}
}

func (s *session) askLogin(ctx context.Context) error {
	var err error
	if s.Server == "" {
		if err = s.askServer(ctx); err != nil {
			return err
		}
		s.secret = ""
	}
	if s.User == "" {
		if s.User, err = s.ask(ctx, "Your user name there", cmp.Or(s.draft.User, doctor.LocalUser()), "--user"); err != nil {
			return err
		}
		s.secret = ""
	}
	if s.PasswordFile == "" && s.TokenFile == "" && s.secret == "" {
		for file, flag := range map[string]string{s.passwordFile(): "--password-file", s.tokenFile(): "--token-file"} {
			if !s.silent && s.isThere(file) {
				return fmt.Errorf("%s is there already: %s uses it, and --force writes it anew", file, flag)
			}
		}
		if s.secret, err = s.askPassword(ctx, "Password of "+s.User+", or a token of the server (it is not shown)"); err != nil {
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

// passwordFile and tokenFile are the files for a secret that was typed, in the directory of the configuration.
func (s *session) passwordFile() string { return filepath.Join(s.dir, "password") }
func (s *session) tokenFile() string    { return filepath.Join(s.dir, "token") }

// tryLogin logs in with the secret that was typed, or that is in a file.
func (s *session) tryLogin(ctx context.Context) (version string, err error) {
	o := client.Options{ClientID: client.WorkerClient}
	switch {
	case s.PasswordFile != "" || s.TokenFile != "":
		c, err := s.filedLogin(ctx)
		if err != nil {
			return "", err
		}
		s.draft.PasswordFile, s.draft.TokenFile = c.PasswordFile, c.TokenFile
		o.Credentials, o.Token = c.Login()
	case codalab.IsProgramToken(s.secret):
		o.Token = func(context.Context) (string, error) { return s.secret, nil }
	default:
		o.Credentials = func(context.Context) (string, string, error) { return s.draft.User, s.secret, nil }
	}
	if s.client, err = client.New(s.draft.Server, o); err != nil {
		return "", err
	}
	return s.client.ServerVersion(ctx)
}

// filedLogin returns a configuration that has the file of the login alone. It fails if the file cannot be used.
func (s *session) filedLogin(ctx context.Context) (c config.Config, err error) {
	c = config.Config{User: s.draft.User, PasswordFile: s.PasswordFile, TokenFile: s.TokenFile}
	if s.PasswordFile != "" && s.TokenFile != "" {
		return c, &UsageError{errors.New("--password-file and --token-file: give one of them")}
	}
	for _, path := range []*string{&c.PasswordFile, &c.TokenFile} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil { // the bridge starts elsewhere
			return c, fmt.Errorf("find the file of the login: %w", err)
		}
	}
	if err := c.CheckLogin(ctx); err != nil {
		return c, &UsageError{err}
	}
	return c, nil
}

// tokenDays is the validity of the token that init makes.
const tokenDays = 365

// settleLogin finds the file for a secret that was typed. In place of a password the bridge gets a token that is for the
// user's bridges alone, on whatever host, if the server has tokens. The password is kept nowhere then.
func (s *session) settleLogin(ctx context.Context) error {
	if s.secret == "" {
		return nil // a file has it
	}
	if !codalab.IsProgramToken(s.secret) {
		workers := s.draft.User + "-*"
		made, err := s.client.AddProgramToken(ctx, codalab.ProgramTokenRequest{Workers: []string{workers}, Days: tokenDays})
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			s.say("The server has no tokens for bridges, as CodaLab's own: the bridge gets the password\n")
			s.draft.PasswordFile = s.passwordFile()
			return nil
		case err != nil:
			return fmt.Errorf("make a token for the bridge: %w", err)
		}
		s.say("The bridge gets the token %s for the workers %s, which is valid for %d days, and no password\n", made.ID, workers, tokenDays)
		s.secret = made.Access
	}
	s.draft.TokenFile = s.tokenFile()
	return nil
}
