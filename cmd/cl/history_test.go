package main

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestHistoryTellsWhatTheServerDidByItself(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		event codalab.BundleEvent
		want  string
	}{
		{own(codalab.ActionKilled, "User time quota exceeded."), "(server) killed: User time quota exceeded."},
		{own(codalab.ActionFailed, "Missing parent bundles: 0x1\x1b[2J"), `(server) failed: Missing parent bundles: 0x1\u001b[2J`},
		{own(codalab.ActionRestaged, `its worker "w" gave the run back, or is gone`), `(server) staged it again: its worker "w" gave the run back, or is gone`},
		{codalab.BundleEvent{Action: codalab.ActionCreated}, "- created"}, // of an older server
	} {
		if got := eventUser(test.event) + " " + eventText(test.event); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// own is an event of the server itself.
func own(action codalab.Action, reason string) codalab.BundleEvent {
	return codalab.BundleEvent{Action: action, EventDetails: codalab.EventDetails{Server: true, Reason: reason}}
}
