package tally_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/tally"
	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestEveryBundleIsCountedOnce(t *testing.T) {
	t.Parallel()
	var all tally.Tally
	for state, n := range map[codalab.State]int{
		"ready": 12, "failed": 2, "killed": 1, tally.Removed: 1, "running": 18, "finalizing": 1, "a new state": 1, "worker_offline": 1,
		"created": 1, "staged": 2, "starting": 1, "preparing": 2, "uploading": 1, "making": 1,
	} {
		for range n {
			all.Add(state)
		}
	}
	want := "12 of 45 ready, 2 failed, 1 killed, 1 removed, 20 running, 1 on a worker that is offline, 8 waiting"
	if got := all.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if all.Ended() != 16 {
		t.Errorf("%d have ended, want 16", all.Ended())
	}
}

func TestColoursOfATallyAreThoseOfTheStates(t *testing.T) {
	t.Parallel()
	got := tally.Tally{Ready: 1, Failed: 1, Running: 1, Waiting: 1}.Text(true)
	if want := "\x1b[32m1 of 4 ready\x1b[0m, \x1b[31m1 failed\x1b[0m, \x1b[36m1 running\x1b[0m, \x1b[33m1 waiting\x1b[0m"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// runs makes runs of a state, one for each time in minutes.
func runs(s codalab.State, minutes ...int) (list []tally.Run) {
	for _, m := range minutes {
		list = append(list, tally.Run{State: s, Took: time.Duration(m) * time.Minute})
	}
	return list
}

func TestTimeLeftIsToldOnlyWhereItIsKnown(t *testing.T) {
	t.Parallel()
	ten := runs("ready", 10, 10, 10)
	join := func(lists ...[]tally.Run) (all []tally.Run) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	for _, test := range []struct {
		name string
		runs []tally.Run
		want string
	}{
		{"nothing is ready", join(runs("running", 1, 2), runs("staged", 0)), ""},
		{"two are ready", join(runs("ready", 10, 10), runs("running", 1)), ""},
		{"nothing runs", join(ten, runs("staged", 0, 0)), ""},
		{"times differ much", join(runs("ready", 1, 1, 30), runs("running", 1)), ""},
		{"a worker is offline", join(ten, runs("running", 1), runs("worker_offline", 1)), ""},
		{"runs that took no time", join(runs("ready", 0, 0, 0), runs("running", 0)), ""},
		{"failed runs tell no time", join(runs("failed", 10, 10, 10), runs("running", 0)), ""},
		{"one runs", join(ten, runs("running", 4)), "about 6m left"},
		{"one runs for long", join(ten, runs("running", 60)), "about a minute left"},
		{"one place, three wait", join(ten, runs("running", 0), runs("staged", 0, 0), runs("preparing", 0)), "about 40m left"},
		{"two places, three wait", join(ten, runs("running", 0, 5), runs("staged", 0, 0, 0)), "about 25m left"},
		{"hours", join(runs("ready", 70, 70, 70), runs("running", 0)), "about 1h10m left"},
		{"whole hours", join(runs("ready", 60, 60, 60), runs("running", 0), runs("staged", 0, 0)), "about 3h left"},
		{"half a day", join(runs("ready", 60, 60, 60), runs("running", 15), runs("staged", make([]int, 12)...)), "about 13h left"},
	} {
		got := ""
		if left, ok := tally.Left(test.runs); ok {
			got = tally.About(left)
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
