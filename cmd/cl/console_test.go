package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// console is a terminal on which cl runs: a pseudo-terminal of the kernel, and an emulator that knows what its user
// sees.
type console struct {
	t       *testing.T
	master  *os.File
	cmd     *exec.Cmd
	screen  *vt.SafeEmulator
	drained chan struct{}
	// written is all that has come to the terminal.
	written testenv.Output
}

// openConsole starts cl on a terminal of UTF-8, whatever the tests themselves run on. The terminal's state after it is
// checked by ends.
func openConsole(t *testing.T, columns, rows int, env []string, args ...string) *console {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cl", args...)
	cmd.Env = append(os.Environ(), append([]string{"TERM=xterm-256color", "NO_COLOR=", "CLICOLOR=", "CLICOLOR_FORCE=", "LC_ALL=C.UTF-8", "GORACE=atexit_sleep_ms=0"}, env...)...)
	master, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		t.Skip("no terminal can be made here:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &console{t: t, master: master, cmd: cmd, screen: vt.NewSafeEmulator(columns, rows), drained: make(chan struct{})}
	go func() {
		defer close(c.drained)
		_, _ = io.Copy(io.MultiWriter(c.screen, &c.written), master) // it fails when cl ends
	}()
	go func() { _, _ = io.Copy(master, c.screen) }() // the terminal's answers to questions
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = master.Close()
		_ = c.screen.Close()
	})
	return c
}

// lines are the lines that the user sees, without the space at their ends.
func (c *console) lines() []string {
	lines := strings.Split(c.screen.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \r")
	}
	return lines
}

// sees waits until the screen shows a text.
func (c *console) sees(text string) {
	c.t.Helper()
	if !testenv.Poll(func() bool { return strings.Contains(strings.Join(c.lines(), "\n"), text) }) {
		c.t.Fatalf("the screen does not show %q, but:\n%s", text, strings.Join(c.lines(), "\n"))
	}
}

// seesNot waits until the screen does not show a text any more.
func (c *console) seesNot(text string) {
	c.t.Helper()
	if !testenv.Poll(func() bool { return !strings.Contains(strings.Join(c.lines(), "\n"), text) }) {
		c.t.Fatalf("the screen still shows %q:\n%s", text, strings.Join(c.lines(), "\n"))
	}
}

// resize gives the window another size.
func (c *console) resize(columns, rows int) {
	c.t.Helper()
	c.screen.Resize(columns, rows)
	if err := pty.Setsize(c.master, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)}); err != nil {
		c.t.Fatal(err)
	}
}

// interrupt is Ctrl-C in a terminal that turns it into a signal.
func (c *console) interrupt() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil {
		c.t.Fatal(err)
	}
}

// ends waits for the end of cl, and checks its exit code and that it leaves the terminal as it was: the user's own
// screen, with a cursor.
func (c *console) ends(code int) {
	c.t.Helper()
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	if got := c.cmd.ProcessState.ExitCode(); got != code {
		c.t.Errorf("exit code %d, want %d; the screen shows\n%s", got, code, strings.Join(c.lines(), "\n"))
	}
	testenv.Receive(c.t, "the end of the output", c.drained)
	all := c.written.String()
	for _, pair := range [][2]string{{"\x1b[?1049h", "\x1b[?1049l"}, {"\x1b[?25l", "\x1b[?25h"}} {
		if strings.LastIndex(all, pair[0]) > strings.LastIndex(all, pair[1]) {
			c.t.Errorf("%q is not undone", pair[0])
		}
	}
}

// types presses keys.
func (c *console) types(keys string) {
	c.t.Helper()
	if _, err := io.WriteString(c.master, keys); err != nil {
		c.t.Fatal(err)
	}
}
