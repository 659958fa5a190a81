package bridge

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// TestI11StandingLimitOfOneQueueHoldsNoOtherUp: Slurm refuses every job of one queue for now, such as
// at a limit of submitted jobs that stands for days. A bundle of another queue then waits for one more
// try of each refused owner and for nothing else, after five minutes of tries too.
func TestI11StandingLimitOfOneQueueHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	late := now.Add(5 * time.Minute)
	const owners = 30
	staged := func(queue string, owner, i int) plan.Row {
		r := plan.Row{Bundle: fmt.Sprintf("0x%s%012d", queue, i), Queue: queue, Version: 1, Phase: plan.Staging, Staged: &spool.Inputs{}}
		r.Run = &codalab.RunBundle{UUID: r.Bundle, OwnerID: fmt.Sprint(owner)}
		return r
	}
	rows := []plan.Row{staged("gpu", 0, 0)}
	rows[0].DueAt = late
	for i := range 10 * owners {
		rows = append(rows, staged("cpu", i%owners, i))
	}
	b := &Bridge{Config: Config{
		Policy: plan.Policy{Bridge: "b1b2b3", Queues: map[string]plan.Queue{"cpu": {Name: "cpu"}, "gpu": {Name: "gpu"}}},
		Ledger: &memory{rows: rows}, Log: slog.New(slog.DiscardHandler),
	}}
	if err := b.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.inbox.putSnapshot(sbatch.Snapshot{Asked: now})
	var went time.Time
	refused := 0
	for ; now.Before(late.Add(3*time.Minute)) && went.IsZero(); now = now.Add(500 * time.Millisecond) {
		effects, _, err := b.Step(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range effects {
			b.decider.starter.active.end(e)
			end := plan.SbatchAnswer{Attempt: 1, Refused: true, Retry: true, Words: "QOSMaxSubmitJobPerUserLimit"}
			switch {
			case e.Kind == plan.Prepare:
				b.inbox.put(e.Row.Bundle, func(n *plan.News) { n.Prepared = &plan.Outcome{} })
			case e.Row.Queue == "gpu":
				went = now
			default:
				refused++
				b.inbox.put(e.Row.Bundle, func(n *plan.News) { n.Submitted = &end })
			}
		}
	}
	if took := went.Sub(late); went.IsZero() || took > owners*time.Second/2+5*time.Second {
		t.Errorf("the other queue's bundle went after %v (never if negative), after %d refusals", took, refused)
	}
	if refused < 20 {
		t.Errorf("%d refusals", refused)
	}
}

// TestSubmissionThatIsTooLateCostsNoRequest: if it took the place of one that is in time, that one would
// become too late as well, and so on without end.
func TestSubmissionThatIsTooLateCostsNoRequest(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	b := opened(t)
	b.inbox.putSnapshot(sbatch.Snapshot{Asked: now})
	for i := range 100 {
		row := plan.Row{Bundle: fmt.Sprint(i), Run: &codalab.RunBundle{}, Queue: "cpu", Phase: plan.Submitting}
		row.SubmittedAt = now.Add(-plan.SubmitWithin - time.Second)
		b.decider.rows.put(&row)
		b.decider.starter.held = append(b.decider.starter.held, plan.Effect{Kind: plan.Submit, Row: &row})
	}
	if _, _, err := b.Step(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if left := budget(b.decider.pace.submits, now); len(b.decider.starter.held) > 0 || left != DefaultPace().Burst {
		t.Errorf("%d are held, %d requests are left; want none held, and all left", len(b.decider.starter.held), left)
	}
}

// TestRowsThatAreAboutToBeSubmittedUseUpThePace: a step begins no more attempts than the pace allows
// submissions. More attempts would only wait, and an attempt that has begun cannot be held back when the
// queue is held up.
func TestRowsThatAreAboutToBeSubmittedUseUpThePace(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	rows := make([]plan.Row, 3*DefaultPace().Burst)
	for i := range rows {
		rows[i] = plan.Row{Bundle: fmt.Sprint(i), OfferedAt: now, Phase: plan.Staging, Staged: &spool.Inputs{}}
	}
	b := opened(t, rows...)
	b.inbox.putSnapshot(sbatch.Snapshot{Asked: now})
	submissions := 0
	for range 3 {
		effects, _, err := b.Step(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range effects {
			switch e.Kind {
			case plan.Prepare:
				b.inbox.putEnded(e, func(*plan.Row) func(*plan.News) { return func(n *plan.News) { n.Prepared = &plan.Outcome{} } })
			case plan.Submit:
				submissions++
			}
		}
	}
	attempts := 0
	for _, r := range rows {
		if b.decider.rows.get(r.Bundle).Phase == plan.Submitting {
			attempts++
		}
	}
	if want := DefaultPace().Burst; submissions != want || attempts != want {
		t.Errorf("%d attempts, %d submissions; want %d", attempts, submissions, want)
	}
}
