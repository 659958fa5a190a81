package plan_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// namedStates are the states that the recorded Slurms have names for (sbatch/testdata/record-reasons), and one that none
// of them has.
func namedStates(t *testing.T) []sbatch.State {
	t.Helper()
	all := map[sbatch.State]bool{"A_STATE_TO_COME": true}
	files, err := filepath.Glob("../../sbatch/testdata/*/reasons.txt")
	if err != nil || len(files) != 3 {
		t.Fatalf("recorded names: %v, %v; want those of three Slurms", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "state "); ok {
				all[sbatch.State(name)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// The golden file has each state of the installed Slurms, and what a bundle's owner is told when Slurm shows its job in it.
// A test of internal/explained makes real Slurms give most of them.
func TestEachStateOfTheInstalledSlurmsHasItsVerdict(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("# Each state that Slurm 22.05, 24.11 and 26.05 have a name for, and what is told of a bundle whose job is in it.\n" +
		"# A state without a verdict is no end.\n")
	terminated := exit(143)
	terminated.Terminated, terminated.Cause, terminated.Failure = true, spool.CausePlatform, "The job was terminated before the command had ended."
	for _, state := range namedStates(t) {
		fmt.Fprintf(&text, "\n%s\n", state)
		for _, s := range []struct {
			name  string
			phase plan.Phase
			exit  *spool.Exit
		}{
			{"before it begins", plan.Queued, nil},
			{"its worker left no exit record", plan.Running, nil},
			{"its worker was told to end", plan.Running, terminated},
		} {
			fmt.Fprintf(&text, "  %s:\n    %s\n", s.name, toldOf(t, state, s.phase, s.exit))
		}
	}
	golden := filepath.Join("testdata", "states.golden")
	if *rewrite {
		writeDown(t, golden, text.String())
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text.String(), "\n")); d != "" {
		t.Errorf("run with -rewrite if this is meant (-want +got):\n%s", d)
	}
}

// toldOf returns what is told of a bundle after Slurm has shown its job in a state for two minutes.
func toldOf(t *testing.T, state sbatch.State, phase plan.Phase, end *spool.Exit) string {
	t.Helper()
	b := given(t, rowIn(phase))
	b.policy.MaxAttempts, b.policy.StagePatience = 1, 0
	shown := job(state)
	known := shown
	switch state {
	case sbatch.StateCancelled:
		known.CancelledBy, known.Canceller = "1001", "ann"
	case sbatch.StateFailed:
		known.Exit = "0:9"
	case sbatch.StatePending:
		shown.Submitted = epoch.Add(time.Second) // by a requeue, after the begin
	case sbatch.StateCompleted:
		known.Exit, shown.Exit = sbatch.ExitedWell, sbatch.ExitedWell
	default: // sacct knows no more than squeue
	}
	var begun *spool.Started
	if phase == plan.Running {
		begun = started()
	}
	b.at(late).decide(read(late, begun, end))
	for at := late; at < late+2*time.Minute && b.row.Verdict == nil; at += 5 * time.Second {
		b.at(at).decide(seen(at, shown))
		for range 3 { // what it wants for an answer
			switch kinds := b.kinds(); {
			case b.row.Verdict != nil:
			case slices.Contains(kinds, plan.QueryAccounting):
				b.decide(accounted(at, known))
			case slices.Contains(kinds, plan.ReadRecords):
				b.decide(read(at, begun, end))
			case slices.Contains(kinds, plan.Fence):
				b.decide(fencing(spool.Started{Fenced: true, Token: "ours"}))
			}
		}
	}
	if v := b.row.Verdict; v != nil {
		return fmt.Sprintf("verdict %s: %s", v.Cause, strings.TrimSpace(v.Failure))
	}
	return b.row.RunStatus()
}
