package bridge

import (
	"context"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// turnsEvery is the pause between two questions for the places of the waiting jobs. The controller's answer has the
// pending jobs of all users, so the pause is longer than that between two snapshots.
const turnsEvery = time.Minute

// turnWatch asks for the places of the waiting jobs among those of all users, with one question for all rows. Only
// slurmWatch's goroutine uses it.
type turnWatch struct {
	ask   func(ctx context.Context, ids []sbatch.JobID) (map[sbatch.JobID]sbatch.Turn, error) // nil for never
	view  *view
	inbox *inbox
	log   *slog.Logger

	hidden bool // other users' jobs are not shown, so places would be wrong
	due    time.Time
}

// askIfDue asks for the places of the jobs that wait for their turn, and gives each row whose place has changed its
// new place. Without an answer no row has a place, because an old one would mislead.
func (w *turnWatch) askIfDue(ctx context.Context, now time.Time) {
	if w.ask == nil || w.hidden || now.Before(w.due) {
		return
	}
	var rows []*plan.Row
	var ids []sbatch.JobID
	for _, r := range w.view.inFlight() {
		if r.WaitsForTurn() {
			rows, ids = append(rows, r), append(ids, r.Job.ID)
		}
	}
	if len(rows) == 0 {
		return
	}
	w.due = now.Add(turnsEvery)
	turns, err := w.ask(ctx, ids)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		w.log.DebugContext(ctx, "the places of the waiting jobs are not known", errorAttr(err))
	}
	for _, r := range rows {
		if turn := turns[r.Job.ID]; turn.Rounded() != r.Turn {
			w.inbox.put(r.Bundle, func(n *plan.News) { n.Turn = &turn })
		}
	}
}
