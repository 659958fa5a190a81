package main

import (
	"strings"
	"testing"
)

func TestBundleIsWatchedOnATerminal(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	first := s.aRun(t, "first", "echo \x1b[2J 学習率")
	c := openConsole(t, 100, 14, s.consoleEnv(), "info", "--watch", "^")
	c.sees("0 of 1 ready, 1 waiting")
	c.sees(`echo \u001b[2J 学習率`)
	c.sees("… ") // it has more lines than the terminal
	s.aRun(t, "second", "true")
	s.ends(t, 0, "kill", first)
	c.sees("state                     : killed")
	c.seesNot("second") // the newest bundle is another one now
	c.resize(100, 60)
	c.sees("failure_message")
	c.resize(20, 8)
	c.sees("state              …")
	n := newNetwork(t, s)
	c.interrupt()
	c.ends(130)

	c = openConsole(t, 100, 40, append(s.consoleEnv(), "CL_SERVER="+n.address), "info", "--watch", "second", "-f", "name,state")
	c.sees("second  staged")
	n.cut()
	c.sees("The server has not answered for ")
	s.ends(t, 0, "kill", "second")
	n.heal(t, 1)
	c.sees("second  killed")
	c.seesNot("The server has not answered")
	s.ends(t, 0, "rm", "second")
	c.sees(" was removed")
	c.interrupt()
	c.ends(130)
}

// Scripts read changes as lines.
func TestChangesOfABundleComeAsLinesWithoutATerminal(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args                []string
		first, killed, gone string
	}{
		{[]string{"-f", "name,state"}, "first\tstaged\n", "first\tkilled\n", " was removed\n"},
		{nil, "state                     : staged\n", "state                     : killed\n", " was removed\n"},
		{[]string{"--json", "-f", "state"}, `{"state":"staged","uuid":"0x`, `{"state":"killed","uuid":"0x`, `,"uuid":"0x`},
		{[]string{"--json"}, `"state":"staged"`, `"state":"killed"`, `{"removed":true,"uuid":"0x`},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			s := newTransferSite(t, 1<<40)
			first := s.aRun(t, "first", "true")
			run := s.start(t, append([]string{"info", "--watch", first}, test.args...)...)
			run.prints(t, test.first)
			s.awaitCalls(t, "/rest/bundles", 4) // looks without a change
			s.ends(t, 0, "kill", first)
			run.prints(t, test.killed)
			s.ends(t, 0, "rm", "--force", first)
			run.prints(t, test.gone)
			if code := run.interrupt(t); code != 130 {
				t.Errorf("exit code %d", code)
			}
			// The reason of the wait may come a moment after the state.
			if out := run.out.String(); strings.Contains(out, "\x1b") || strings.Count(out, test.first) > 2 || strings.Count(out, test.killed) != 1 {
				t.Errorf("prints\n%s", out)
			}
		})
	}
}

func TestWatchOfABundleRefusesWhatItCannotShow(t *testing.T) {
	t.Parallel()
	refused(t, []string{"info", "--watch", "-v", "a"}, "leave out -v")
	refused(t, []string{"info", "--watch", "--history", "a"}, "leave out -f, -r, -v and --watch")
	s := newTransferSite(t, 1<<40)
	if r := s.ends(t, 1, "info", "--watch", "nosuch"); !strings.Contains(r.stderr, "nosuch") || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("a bundle that is not there: %q", r.stderr)
	}
}
