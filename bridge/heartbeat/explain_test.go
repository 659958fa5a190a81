package heartbeat

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
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
