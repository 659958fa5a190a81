package trace

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Each row that shares a submission has the name of the first one.
func TestDecisionsOfRowsThatShareASubmissionFollowFromOneAnother(t *testing.T) {
	t.Parallel()
	p, now := policy(), time.Unix(1_800_000_000, 0)
	var rows [2]plan.Row
	var decisions []plan.Decision
	decide := func(i int, n plan.News) {
		next, effects := p.Next(now, rows[i], n)
		decisions = append(decisions, plan.Decision{Now: now, Row: rows[i], News: n, Next: next, Effects: plan.KindsOf(effects)})
		rows[i] = next
	}
	for i := range rows {
		rows[i] = plan.NewRow(now, "cpu", codalab.Message{Bundle: &codalab.RunBundle{UUID: bundle[:2] + string(rune('1'+i)) + bundle[3:], Command: "true"}})
		decide(i, plan.News{Claimed: &plan.Claimed{Accepted: true}})
		decide(i, plan.News{Staged: &plan.StageEnd{Inputs: spool.Inputs{SIF: "/x.sif"}}})
	}
	copy(rows[:], p.NewAttempts(now, []*plan.Row{&rows[0], &rows[1]}, 4))
	for i := range rows {
		decide(i, plan.News{Submission: &plan.Place{State: plan.Gathering}})
	}
	path := filepath.Join(t.TempDir(), "trace")
	recorded(t, path, p, decisions...)
	if sum, wrong := replayed(t, path, ""); sum.Different > 0 {
		t.Errorf("%+v: line %d, discontinuous: %v", sum, wrong[0].Line, wrong[0].Discontinuous)
	}
}
