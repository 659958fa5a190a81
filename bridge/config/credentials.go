package config

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
)

// Login returns the functions by which a client signs in: credentials with password_file, or token with token_file.
// The other one is nil.
func (c Config) Login() (credentials func(context.Context) (user, password string, err error), token func(context.Context) (string, error)) {
	if c.TokenFile != "" {
		return nil, c.token
	}
	return c.Credentials, nil
}

// CheckLogin fails if the file with the password or the token cannot be used. It asks no server.
func (c Config) CheckLogin(ctx context.Context) error {
	credentials, token := c.Login()
	if token != nil {
		_, err := token(ctx)
		return err
	}
	_, _, err := credentials(ctx)
	return err
}

// Credentials returns the user and the password. It reads the file at each call, so that
// the password can be changed while the bridge runs, and refuses a file that others may
// read or replace.
func (c Config) Credentials(context.Context) (user, password string, err error) {
	text, err := c.secret("password", c.PasswordFile)
	return c.User, strings.TrimRight(string(text), "\r\n"), err
}

// token returns the program token. It reads the file at each call, as Credentials does.
func (c Config) token(context.Context) (string, error) {
	text, err := c.secret("token", c.TokenFile)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if _, err := codalab.ProgramTokenID(token); err != nil {
		return "", fmt.Errorf("token_file %s: %w", c.TokenFile, err)
	}
	return token, nil
}

// secret reads a file that only the bridge's account, and those whom the key trust names, can replace.
func (c Config) secret(kind, path string) ([]byte, error) {
	own, err := strictmodes.Current().Trust(c.Trust...)
	if err != nil {
		return nil, fmt.Errorf("trust: %w", err)
	}
	text, err := own.ReadOwnSecret(kind, path)
	if open, ok := errors.AsType[*strictmodes.Error](err); ok && open.Who != "" {
		return nil, fmt.Errorf("%w; or write trust = [%q] if they may act as you", err, open.Who)
	}
	return text, err
}
