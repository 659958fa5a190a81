package heartbeat

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func TestEachPhaseSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	seen := map[string]plan.Phase{}
	for _, phase := range plan.Phases() {
		said := waitsFor(plan.Row{Phase: phase})
		if said == "" || seen[said] != "" || strings.Contains(said, "version") {
			t.Errorf("%s waits for %q, as %s", phase, said, seen[said])
		}
		seen[said] = phase
	}
}

// The last snapshot may have shown the job of a bundle that has ended while it ran.
func TestEndedBundleHasNoRunningJob(t *testing.T) {
	t.Parallel()
	for state, want := range map[sbatch.State]sbatch.State{sbatch.StateRunning: "", sbatch.StateTimeout: sbatch.StateTimeout} {
		row := plan.Row{Phase: plan.Done, Verdict: &plan.Verdict{}}
		row.Job = sbatch.Job{ID: 7, State: state, Reason: "None"}
		var e Explanation
		if e.addRow(row); e.JobState != want || e.Job != 7 {
			t.Errorf("the last snapshot shows %s: job %s is %q, want %q", state, e.Job, e.JobState, want)
		}
	}
}
