package main

import (
	"strings"
	"testing"
)

// On a terminal, cl run says where the page of the run is. A script gets the uuid alone.
func TestRunTellsItsPageOnATerminal(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	c := openConsole(t, 200, 10, s.consoleEnv(), "run", "true")
	c.ends(0)
	c.sees(s.address + "/bundles/0x")
	if r := s.ends(t, 0, "run", "true"); strings.Contains(r.stdout+r.stderr, "/bundles/") {
		t.Errorf("cl run printed %q and %q", r.stdout, r.stderr)
	}
}
