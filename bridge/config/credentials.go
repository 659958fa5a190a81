package config

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// Credentials returns the user and the password. It reads the file at each call, so that
// the password can be changed while the bridge runs, and refuses a file that others may
// read.
func (c Config) Credentials(context.Context) (user, password string, err error) {
	info, err := os.Stat(c.PasswordFile)
	if err != nil {
		return "", "", fmt.Errorf("read password_file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", "", fmt.Errorf("password_file %s may be read by others: chmod 600 it", c.PasswordFile)
	}
	data, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", "", fmt.Errorf("read password_file: %w", err)
	}
	return c.User, strings.TrimRight(string(data), "\r\n"), nil
}
