package testsite_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// The size of a terminal: no answer scrolls.
const columns, rows = 160, 400

// mark comes before each prompt, as terminals know it: the beginning of a prompt in the semantic prompts of FinalTerm.
const mark = "\x1b]133;A\a"

// terminal is a researcher's shell on a terminal.
type terminal struct {
	t       *testing.T
	master  *os.File
	written testenv.Output
	prompts int
}

// openTerminal starts a shell on a site, with cl and the site's user signed in.
func openTerminal(t *testing.T, s *testsite.Site) *terminal {
	t.Helper()
	login, err := os.ReadFile(s.PasswordFile())
	testenv.Must(t, err)
	name, password, _ := strings.Cut(strings.TrimSpace(string(login)), "\n")
	cmd := s.Program("/bin/bash", "--noprofile", "--norc", "--noediting", "-i")
	cmd.Env = append(cmd.Env, "TERM=xterm-256color", "LANG=C.UTF-8", "CODALAB_USERNAME="+name, "CODALAB_PASSWORD="+password, "CODALAB_SESSION=day")
	cmd.SysProcAttr.Setpgid = false // it leads a session
	master, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: columns, Rows: rows})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		t.Skip("no terminal can be made here:", err)
	}
	testenv.Must(t, err)
	c := &terminal{t: t, master: master}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(&c.written, master) // it fails when the shell ends
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = master.Close()
		<-drained
		_ = cmd.Wait()
	})
	c.types(`stty -echo; HISTFILE= PS2= PS1='\e]133;A\a'; cd "$HOME"`)
	return c
}

// types types a command, waits for the next prompt, and returns what the terminal shows between.
func (c *terminal) types(command string) string {
	c.t.Helper()
	before := len(c.written.String())
	_, err := io.WriteString(c.master, command+"\n")
	testenv.Must(c.t, err)
	c.prompts++
	testenv.Await(c.t, "the answer to "+command, func() bool { return strings.Count(c.written.String(), mark) >= c.prompts }, func() string { return c.written.String()[before:] })
	screen := vt.NewEmulator(columns, rows)
	defer func() { _ = screen.Close() }()
	_, err = io.WriteString(screen, c.written.String()[before:])
	testenv.Must(c.t, err)
	var lines []string
	for line := range strings.Lines(screen.String()) {
		lines = append(lines, strings.TrimRight(line, " \r\n"))
	}
	if text := strings.TrimRight(strings.Join(lines, "\n"), "\n"); text != "" {
		return text + "\n"
	}
	return ""
}
