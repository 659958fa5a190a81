package testsite

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Program returns one of the installed programs, or one by its path, as User runs it on the site: the
// caller starts it and waits for its end.
func (s *Site) Program(args ...string) *exec.Cmd {
	path := args[0]
	if !strings.Contains(path, "/") {
		path = program(path)
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Env, cmd.Dir = s.env, s.path("home")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.credential, Setpgid: true}
	return cmd
}

// PasswordFile is a file with the name and the password of User on two lines, as workers read it.
func (s *Site) PasswordFile() string { return s.path("login") }

// writeLogin writes PasswordFile.
func (s *Site) writeLogin() error {
	path := filepath.Clean(s.PasswordFile())
	return errors.Join(os.WriteFile(path, []byte(User+"\n"+s.password+"\n"), 0o600), os.Chown(path, int(s.credential.Uid), int(s.credential.Gid)))
}
