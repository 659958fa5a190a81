package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// consoleEnv are the variables of a cl on a site.
func (s *transferSite) consoleEnv() []string {
	return []string{
		"CL_SERVER=" + s.address, "CODALAB_USERNAME=" + userName, "CODALAB_PASSWORD=" + password, "CODALAB_HOME=" + s.dir + "/home", "TZ=UTC",
	}
}

// aRun makes a run that waits for ever, and returns its uuid.
func (s *transferSite) aRun(t *testing.T, name, command string) string {
	t.Helper()
	return strings.TrimSpace(s.ends(t, 0, "run", command, "-n", name, "--request-queue", "none").stdout)
}

func TestListIsWatchedOnATerminal(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	first := s.aRun(t, "first", "echo \x1b[2J\x1b]0;title\x07 学習率")
	c := openConsole(t, 100, 10, s.consoleEnv(), "ls", "--watch", "-f", "uuid,name,command,state")
	c.sees("0 of 1 ready, 1 waiting")
	c.sees(`echo \u001b[2J\u001b]0;title\u0007 学習率`)
	s.aRun(t, "second", "true")
	s.ends(t, 0, "kill", first)
	c.sees("second")
	c.sees("killed")
	c.sees("0 of 2 ready, 1 killed, 1 waiting")

	c.resize(20, 10)
	c.sees("0x" + first[2:8] + "  firs…")
	for _, line := range c.lines() {
		if strings.Contains(line, "\x1b") {
			t.Errorf("a line shows a sequence: %q", line)
		}
	}

	// The server goes away for a moment, and one line says so.
	var away atomic.Bool
	away.Store(true)
	s.on("GET", "/", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if away.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		next.ServeHTTP(w, r)
	})
	c.resize(100, 10)
	c.sees("The server has not answered for ")
	c.sees("second")
	away.Store(false)
	c.seesNot("The server has not answered")
	c.interrupt()
	c.ends(130)
}

func TestMoreRowsThanTheTerminalHasAreCounted(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	for _, name := range []string{"a1", "a2", "a3", "a4", "a5"} {
		s.aRun(t, name, "true")
	}
	c := openConsole(t, 60, 6, s.consoleEnv(), "ls", "--watch", "-f", "name")
	c.sees("… 3 more")
	c.sees("^1  a5")
	c.seesNot("a3")
	c.interrupt()
	c.ends(130)
	c = openConsole(t, 60, 6, s.consoleEnv(), "search", "name=a%", "--watch", "-f", "name")
	c.sees("… 3 more")
	c.sees("a1")
	c.seesNot("a3")
	c.interrupt()
	c.ends(130)
}

// Scripts read changes as lines.
func TestChangesComeAsLinesWithoutATerminal(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args                []string
		killed, added, gone string
	}{
		{[]string{"ls", "--watch", "-f", "name,state"}, "first  killed", "  second", " is no longer in the list\n"},
		{[]string{"ls", "--watch", "-f", "name,state", "--json"}, `"state":"killed"`, `"name":"second"`, `,"removed":true}` + "\n"},
		{[]string{"search", ".mine", "--watch", "--json"}, `"state":"killed"`, `"name":"second"`, `,"removed":true}` + "\n"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			s := newTransferSite(t, 1<<40)
			first := s.aRun(t, "first", "true")
			run := s.start(t, test.args...)
			run.prints(t, "first")
			s.ends(t, 0, "kill", first)
			run.prints(t, test.killed)
			second := s.aRun(t, "second", "true")
			run.prints(t, test.added)
			s.ends(t, 0, "kill", second)
			s.ends(t, 0, "rm", "--force", second)
			run.prints(t, test.gone)
			if code := run.interrupt(t); code != 130 {
				t.Errorf("exit code %d", code)
			}
			out := run.out.String()
			if strings.Contains(out, "\x1b") {
				t.Errorf("a terminal's command: %q", out)
			}
			if strings.Count(out, "first") > 2 || strings.Count(out, "ref ") > 1 {
				t.Errorf("lines without a change:\n%s", out)
			}
		})
	}
}

func TestWatchedListLeavesASlowServerAlone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		took     time.Duration
		failures int
		want     time.Duration
	}{
		{time.Millisecond, 0, time.Second},
		{5 * time.Second, 0, 20 * time.Second},
		{time.Millisecond, 1, time.Second / 4},
		{time.Millisecond, 4, 2 * time.Second},
		{time.Millisecond, 100, 15 * time.Second},
		{9 * time.Hour, 0, time.Minute}, // a laptop slept meanwhile
	} {
		if got := watchPause(test.took, test.failures); got != test.want {
			t.Errorf("after %s and %d failures the pause is %s, want %s", test.took, test.failures, got, test.want)
		}
	}
}

// running is a cl that goes on while the test looks at its output.
type running struct {
	stop      context.CancelFunc
	out, errs testenv.Output
	code      chan int
}

// start starts cl without a terminal.
func (s *transferSite) start(t *testing.T, args ...string) *running {
	t.Helper()
	return s.startAt(t, s.now, args...)
}

// startAt starts cl with a clock. Its error is the last line of errs.
func (s *transferSite) startAt(t *testing.T, now func() time.Time, args ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{stop: stop, code: make(chan int, 1)}
	environment := map[string]string{
		"CL_SERVER": s.address, "CODALAB_USERNAME": userName, "CODALAB_PASSWORD": password, "CODALAB_HOME": filepath.Join(s.dir, "home"),
	}
	go func() {
		err := run(ctx, program.Process{
			Args: args, Stdin: strings.NewReader(""), Stdout: &r.out, Stderr: &r.errs, Now: now,
			Getenv: func(name string) string { return environment[name] },
		})
		if err != nil {
			_, _ = fmt.Fprintln(&r.errs, err) // it takes everything
		}
		r.code <- program.Code(ctx, err)
	}()
	return r
}

// tells waits until cl has printed a text on standard error.
func (r *running) tells(t *testing.T, text string) {
	t.Helper()
	testenv.Await(t, "words on standard error", func() bool { return strings.Contains(r.errs.String(), text) })
}

// prints waits until cl has printed a text.
func (r *running) prints(t *testing.T, text string) {
	t.Helper()
	if !testenv.Poll(func() bool { return strings.Contains(r.out.String(), text) }) {
		t.Fatalf("cl does not print %q, but:\n%s", text, r.out.String())
	}
}

// interrupt is Ctrl-C. It returns the exit code.
func (r *running) interrupt(t *testing.T) int {
	t.Helper()
	r.stop()
	return testenv.Receive(t, "the end of cl", r.code)
}
