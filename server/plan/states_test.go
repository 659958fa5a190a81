package plan

import (
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// moves are all transitions, with arguments by chance.
func moves(r *rand.Rand, now time.Time) map[string]func(Bundle) Bundle {
	chance := func() bool { return r.IntN(2) == 0 }
	one := func(states ...codalab.State) codalab.State { return states[r.IntN(len(states))] }
	report := func() codalab.RunReport {
		run := codalab.RunReport{
			State: one(codalab.StateStaged, codalab.StatePreparing, codalab.StateRunning, codalab.StateFinalizing, "mad"), RunStatus: "it runs",
			DiskUtilization: r.Int64() - r.Int64(), ContainerTimeTotal: float64(r.IntN(100)),
		}
		if code := r.IntN(2); chance() {
			run.ExitCode = &code
		}
		if words := codalab.KillRequested; chance() {
			run.FailureMessage = &words
		}
		return run
	}
	w := Worker{"u", "w"}
	return map[string]func(Bundle) Bundle{
		"Stage": func(b Bundle) Bundle {
			b, _ = b.Stage([]Parent{{UUID: "0x1", Readable: true, State: one(codalab.StateReady, codalab.StateFailed, codalab.StateRunning)}})
			return b
		},
		"Assign":      func(b Bundle) Bundle { return b.Assign(w, now) },
		"Claim":       func(b Bundle) Bundle { b, _ = b.Claim(w, codalab.StartBundle{Hostname: "h"}, chance()); return b },
		"Unclaim":     Bundle.Unclaim,
		"Offline":     func(b Bundle) Bundle { return b.GoOffline(now) },
		"Report":      func(b Bundle) Bundle { return b.ApplyReport(report(), now, chance()) },
		"Expire":      func(b Bundle) Bundle { return b.Expire(now.Add(StuckAfter)) },
		"Kill":        Bundle.Kill,
		"Quota":       func(b Bundle) Bundle { return b.KillOverQuota(Quota{}) },
		"TakeResults": func(b Bundle) Bundle { return b.TakeResults("results", codalab.Extent{Bytes: 7, Entries: 2}) },
		"Announce":    func(b Bundle) Bundle { return b.Announce(r.Int64N(9)) },
		"Uncount":     Bundle.Uncount,
		"Upload": func(b Bundle) Bundle {
			b, _ = b.EndUpload(one(codalab.StateReady, codalab.StateFailed, codalab.StateKilled, ""))
			return b
		},
		"FailUpload": func(b Bundle) Bundle { return b.FailUpload("no") },
		"Making": func(b Bundle) Bundle {
			if b.Type == codalab.TypeMake {
				b, _ = b.Making()
			}
			return b
		},
		"Made":     func(b Bundle) Bundle { b, _ = b.Made(); return b },
		"NotMade":  func(b Bundle) Bundle { return b.FailMaking("no") },
		"Decision": func(b Bundle) Bundle { return Decisions{Failed: map[string]string{b.UUID: "no"}}.Apply(b, now) },
	}
}

// anyMove returns a function that returns one of moves at each call.
func anyMove(r *rand.Rand) func() (string, func(Bundle) Bundle) {
	all := moves(r, time.Unix(1000, 0))
	names := slices.Sorted(maps.Keys(all))
	return func() (string, func(Bundle) Bundle) {
		name := names[r.IntN(len(names))]
		return name, all[name]
	}
}

// begin returns a new bundle of any kind.
func begin(r *rand.Rand) Bundle {
	kinds := []string{codalab.TypeDataset, codalab.TypeMake, codalab.TypeRun, codalab.TypeRun, codalab.TypeRun}
	b := Bundle{UUID: "0xb", Type: kinds[r.IntN(len(kinds))], OwnerID: "a", Metadata: codalab.Metadata{"name": "b"}}
	if b.Type != codalab.TypeDataset && r.IntN(2) == 0 {
		b.Dependencies = []codalab.Dependency{{ParentUUID: "0x1"}}
	}
	if b.Type == codalab.TypeDataset && r.IntN(9) == 0 {
		b.Metadata["link_url"] = "/data"
	}
	return b.Create(b.Type == codalab.TypeRun && r.IntN(9) == 0)
}

// walk makes random transitions of random bundles, and calls see with each. The first one of each bundle is its
// creation, before which it has no state.
func walk(see func(name string, before, after Bundle)) {
	r := rand.New(rand.NewPCG(1, 2))
	next, all := anyMove(r), moves(r, time.Unix(1000, 0))
	for range 9000 {
		b := begin(r)
		see("Create", Bundle{}, b)
		lead := []string{"Assign", "Claim", "Report"}[:r.IntN(4)] // by chance, few runs come as far
		for i := range 12 {
			name, move := next()
			if i < len(lead) {
				name, move = lead[i], all[lead[i]]
			}
			after := move(b)
			see(name, b, after)
			b = after
		}
	}
}

func TestInvariantsHoldAfterAnyTransitions(t *testing.T) {
	t.Parallel()
	walk(func(name string, before, b Bundle) {
		switch {
		case before.State.Final() && !cmp.Equal(before, b):
			t.Fatalf("%s changes a bundle that has ended: %s", name, cmp.Diff(before, b))
		case b.State.OnWorker() && b.Worker == (Worker{}):
			t.Fatalf("%s: a bundle is %s, and has no worker", name, b.State)
		case b.Worker != (Worker{}) && !b.State.OnWorker() && !b.State.Final():
			t.Fatalf("%s: a worker has a bundle that is %s", name, b.State)
		case b.DataSize < 0 || b.Metadata.Has("data_size") && b.Metadata.Int("data_size") != b.DataSize || !b.Metadata.Has("data_size") && b.DataSize != 0:
			t.Fatalf("%s: a size of %d, and data_size %v", name, b.DataSize, b.Metadata["data_size"])
		case b.State.Final() && b.Contents == "" && b.DataSize != 0:
			t.Fatalf("%s ends a bundle without contents, whose size is %d", name, b.DataSize)
		case b.ChargedTime < 0:
			t.Fatalf("%s gives back %d s", name, -b.ChargedTime)
		case b.State == codalab.StateStaged && b.KillMessage != "" && before.State != codalab.StateStaged:
			t.Fatalf("%s stages a bundle that was killed", name)
		}
	})
}

func TestTransitionsDoNotChangeTheirArguments(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	next := anyMove(r)
	for range 1000 {
		b := begin(r)
		for range 12 {
			name, move := next()
			before := b.own()
			after := move(b)
			if diff := cmp.Diff(before, b); diff != "" {
				t.Fatalf("%s changes its argument: %s", name, diff)
			}
			b = after
		}
	}
}

// TestDrawingShowsAllTransitions: the drawing of the package comment has those transitions that there are,
// and no other. So an arrow leads to each of its states.
func TestDrawingShowsAllTransitions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[[2]string]bool{}
	all := "uploading | created | staged | making | starting | preparing | running | worker_offline"
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "►") {
			continue
		}
		line = strings.ReplaceAll(strings.TrimSpace(strings.TrimPrefix(line, "//")), "(any but a final one)", all)
		places := regexp.MustCompile(` ──[^►]*► `).Split(line, -1)
		for i := range len(places) - 1 {
			for _, from := range strings.Split(places[i], " | ") {
				for _, to := range strings.Split(places[i+1], " | ") {
					if from != to {
						drawn[[2]string{from, to}] = true
					}
				}
			}
		}
	}
	made := map[[2]string]bool{}
	walk(func(_ string, before, after Bundle) {
		from := string(before.State)
		if from == "" {
			from = "(new)"
		}
		if before.State != after.State {
			made[[2]string{from, string(after.State)}] = true
		}
	})
	for edge := range drawn {
		if !made[edge] {
			t.Errorf("%s → %s is drawn, and never happens", edge[0], edge[1])
		}
	}
	for edge := range made {
		if !drawn[edge] {
			t.Errorf("%s → %s happens, and is not drawn", edge[0], edge[1])
		}
	}
}
