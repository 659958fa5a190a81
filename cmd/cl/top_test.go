package main

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestTopShowsRunsAndKillsThem(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	old := s.aRun(t, "old", "true")
	s.ends(t, 0, "kill", old)
	s.aRun(t, "first", "echo \x1b[2J 学習率")
	c := openConsole(t, 100, 24, s.consoleEnv(), "top")
	c.sees("0 of 2 ready, 1 killed, 1 waiting")
	c.sees(`> 0x`)
	c.sees(`\u001b[2J 学習率`)
	c.sees("No worker serves queue none")
	s.aRun(t, "second", "true")
	c.sees("0 of 3 ready, 1 killed, 2 waiting")

	// A key asks before it kills.
	c.types("k")
	c.sees("Kill first (0x")
	c.types("n")
	c.sees("Nothing is killed.")
	c.types("g  k")
	c.sees("Kill 2 bundles (")
	c.types("y")
	c.sees("0 of 3 ready, 3 killed")
	c.types("k")
	c.sees("No bundle to kill: it has ended.")

	c.types("/old\r")
	c.seesNot("first")
	c.types("i")
	c.sees("bundle_type               : run")
	c.sees("state                     : killed")
	c.types("qo")
	c.sees("(There is no stdout yet.)")
	c.types("q?")
	c.sees("The keys of cl top")
	c.types("xq")
	c.ends(0)
}

func TestTopFitsASmallTerminal(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	for _, name := range []string{"a1", "a2", "a3", "a4", "a5", "a6"} {
		s.aRun(t, name, "true")
	}
	c := openConsole(t, 20, 6, s.consoleEnv(), "top", "-f", "name,state")
	c.types("sSg")
	c.sees("> a6")
	c.seesNot("a1")
	c.types("G")
	c.sees("> a1")
	c.seesNot("a6")
	c.resize(60, 20)
	c.sees("a6")
	c.sees("?: help")
	c.resize(1, 1)
	c.resize(40, 10)
	c.sees("> a1")
	c.types("\x03")
	c.ends(130)
}

// A server that goes away does not end cl top.
func TestTopSaysThatTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	uuid := s.aRun(t, "first", "true")
	var away atomic.Bool
	s.on("GET", "/", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if away.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		next.ServeHTTP(w, r)
	})
	c := openConsole(t, 80, 12, s.consoleEnv(), "top", uuid)
	c.sees("first")
	away.Store(true)
	c.sees("The server has not answered for ")
	c.sees("first")
	away.Store(false)
	s.ends(t, 0, "kill", uuid)
	c.sees("1 killed")
	c.interrupt()
	c.ends(130)
}

func TestTopWithoutATerminalNamesWhatWorks(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"top"}, "UsageError: cl top needs a terminal: cl ls --watch prints changes as lines, and with --json as objects\n"},
		{[]string{"top", "--json"}, "UsageError: cl top is for people: cl search .mine --watch --json prints each change as a line\n"},
	} {
		if r := s.ends(t, 1, test.args...); r.stderr != test.want || r.stdout != "" {
			t.Errorf("%v: %q, %q", test.args, r.stdout, r.stderr)
		}
	}
	c := openConsole(t, 80, 24, append(s.consoleEnv(), "TERM=dumb"), "top")
	c.ends(1)
	if text := c.written.String(); strings.Contains(text, "\x1b") || !strings.Contains(text, "needs a terminal") {
		t.Errorf("on a dumb terminal: %q", text)
	}
}

// Questions take a thirtieth of the time at most.
func TestTopLeavesASlowServerAlone(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{time.Millisecond: time.Second, 100 * time.Millisecond: 3 * time.Second, 2 * time.Second: time.Minute} {
		if got := topPause(took, 0); got != want {
			t.Errorf("after %s the pause is %s, want %s", took, got, want)
		}
	}
	if got := topPause(time.Millisecond, 5); got != 4*time.Second {
		t.Errorf("the pause after five failures is %s", got)
	}
}

func TestUnendedStatesAreThoseThatAreNotFinal(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"ready", "failed", "killed"} {
		if slices.Contains(unended(), state) {
			t.Errorf("%s has ended", state)
		}
	}
}
