package plan_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

const (
	walks     = 2000
	walkSteps = 50
)

// walk leads a bundle through a random life in the language of the scenarios. News may come at any time, but only
// effects that run have outcomes.
func walk(seed uint64, record func(move)) error {
	random := rand.New(rand.NewPCG(seed, 7))
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	w := newWorld()
	w.record, w.quiet = record, true
	asks := seed%4 == 0 // it asks to be resumed
	for range random.IntN(4) {
		if err := w.command(words(pick(sites))); err != nil {
			return err
		}
	}
	if random.IntN(3) > 0 { // otherwise the life begins with the offer
		phases := plan.Phases()
		step := "row phase=" + string(phases[random.IntN(len(phases)-1)])
		if random.IntN(4) == 0 {
			step += " attempt=3"
		}
		if asks {
			step += " resume=2"
		}
		if err := w.command(words(step)); err != nil {
			return err
		}
	}
	said := anyNews()
	if asks {
		said = append(said, "note exit code=143 cause=limit timed-out failure=Slow.", "slurm job=7 state=PENDING submitted=50h")
	}
	for range walkSteps {
		for range 1 + random.IntN(2) {
			line := pick(said)
			if answers := w.answers(); len(answers) > 0 && random.IntN(2) == 0 {
				line = pick(answers)
			}
			if strings.HasPrefix(line, "crash") || strings.HasPrefix(line, "tick") || line == "batch" || w.row == nil {
				if err := w.flush(); err != nil {
					return err
				}
			}
			if w.row == nil {
				line = "message run"
			}
			if err := w.command(words(line)); err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
	return nil
}

// sites are possible configurations of a site.
var sites = []string{
	"policy accounting=no", "policy retry_begun=on_platform", "policy max_attempts=1", "policy max_time=10m", "policy queue=removed",
}

// anyNews is the news that may come at any time.
func anyNews() []string {
	said := []string{
		"tick 1s", "tick 1s", "tick 11s", "tick 11s", "tick 95s", "tick 95s", "tick 11m", "tick 30h",
		"batch", "batch", "batch", "crash", "crash unsaved", "crash clock=-2h", "crash down=6h",
		"message kill", "message run", "message mark_finalized", "message dance", "unanswered",
		"slurm none", "slurm none", "slurm none", "slurm away",
		"slurm job=7 state=RUNNING limit=65m", "slurm job=7 state=RUNNING limit=3h",
		"slurm job=6 state=FAILED nodes=- reason=BadConstraints", "slurm job=7 state=PENDING reason=BadConstraints",
		`slurm job=7 state=RUNNING comment="codalab bundle=0xfeed attempt=1"`,
		"accounting none", "accounting none", "accounting away",
		"note none", "note none", "note unreadable", "note started", "note started", "note closed", "note status", "note status setting-up", "note output text=hello",
		"note exit code=0", "note exit code=3", "note exit code=143 terminated", "note exit code=0 token=somebody", "note exit code=1 cause=platform failure=broken",
		"note started attempt=1", "note exit code=0 attempt=1",
		"disk free=1g", "disk free=52g", "disk free=99g", "disk free=99g",
	}
	for _, state := range append(states(), "HIBERNATING") {
		said = append(said, "slurm job=7 state="+string(state), "accounting job=7 state="+string(state))
	}
	return said
}

// outcomes are the possible ends of each effect.
var outcomes = map[plan.Kind][]string{
	plan.Claim:   {"yes", "yes", "no", "failure=502", "failure=403 final", "failure=404 final gone"},
	plan.Stage:   {"ok", "ok", "failure=away", "failure=full full", "failure=wrong final", "progress=half"},
	plan.Carry:   {"ok", "ok", "failure=away", "failure=full full", "failure=gone final"},
	plan.Prepare: {"ok", "ok", "failure=full"},
	plan.Submit: {
		"job=7", "job=7", "refused words=no", "refused retry words=busy", "words=what?",
	},
	plan.Fence:         {"ours", "ours", "worker", "failure=away", "failure=away gone"},
	plan.TellTimeLimit: {"limit=65m", "limit=3h", "failure=away"},
	plan.Cancel:        {"ok", "ok", "failure=away"},
	plan.StopMember:    {"ok", "ok", "failure=away"},
	plan.Collect:       {"ok", "ok", "failure=502", "failure=413 final", "failure=404 final gone"},
	plan.Confirm: {
		"state=ready", "state=finalizing", "state=running", "state=worker_offline", "state=worker_offline here", "state=starting",
		"state=preparing here", "state=worker_offline here asked=0s", "failure=502", "failure=403 final", "failure=404 final gone",
	},
	plan.Release: {"ok", "ok", "failure=away"},
}

// answers returns the outcomes that may come now.
func (w *world) answers() []string {
	var answers []string
	for _, kind := range plan.Kinds() { // in their order, for the sake of the seed
		if w.row == nil || !w.running[effectKey{kind, w.row.Attempt.Number}] {
			continue
		}
		for _, outcome := range outcomes[kind] {
			answers = append(answers, "answer "+string(kind)+" "+outcome)
		}
	}
	return answers
}

// lives has the decisions of many random lives.
var lives = sync.OnceValues(func() (*atlas, error) {
	a := newAtlas()
	n := uint64(walks)
	if testing.Short() {
		n /= 4
	}
	for seed := range n {
		if err := walk(seed, func(m move) { a.add(m, fmt.Sprintf("life %d", seed)) }); err != nil {
			return nil, fmt.Errorf("life %d: %w", seed, err)
		}
	}
	return a, nil
})

// TestI8RandomLivesAreSane checks each decision of many random lives.
func TestI8RandomLivesAreSane(t *testing.T) {
	t.Parallel()
	a, err := lives()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d decisions", a.decisions)
}
