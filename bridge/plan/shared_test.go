package plan_test

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// TestResultsGoWhereTheServerLastSaid: a claim may have come late, and the server may have given the bundle to the
// bridge a second time.
func TestResultsGoWhereTheServerLastSaid(t *testing.T) {
	t.Parallel()
	p := policy()
	for _, phase := range plan.Phases() {
		r := rowIn(phase)
		before, first, second := r.Run, "/store/1", "/store/2"
		for _, location := range []*string{&first, &second, nil} {
			m := offered()
			m.Bundle.Location = location
			r, _ = p.Next(epoch, r, plan.News{Messages: []codalab.Message{m}})
		}
		if r.Run.Location == nil || *r.Run.Location != second || r.Run.Command != before.Command {
			t.Errorf("%s: %+v", phase, r.Run)
		}
		if before.Location != nil {
			t.Errorf("%s: what rows share was changed", phase)
		}
	}
}
