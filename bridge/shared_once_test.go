package bridge

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// A pass (--once) sees that an array waits for its next sbatch as it sees that of a row of its own: it does not stay for a long
// pause, and says that somebody has to mend a failure.
func TestPassSeesThePauseOfAnArray(t *testing.T) {
	t.Parallel()
	const quiet = 12 * time.Second
	for name, rows := range map[string][]plan.Row{"one": several("1", 0, 1), "array": several("1", 0, 4)} {
		a := newArrays(t, rows...)
		e := passEnder{once: &Once{Quiet: quiet}, board: &a.b.board, inForce: &a.b.inForce}
		a.answer = func(int) plan.SbatchAnswer {
			if len(a.submitted) == 1 {
				return plan.SbatchAnswer{Words: "Socket timed out"}
			}
			return plan.SbatchAnswer{Refused: true, Retry: true, Words: "System submissions disabled"}
		}
		a.pass(time.Second)
		for tries := 0; tries < 6; a.pass(0) {
			tries = len(a.submitted)
			r := a.row(0)
			if paused := r.DueAt.Sub(a.now); r.SubmittedAt.IsZero() && r.AtWork(a.now, quiet) != (paused <= quiet) {
				t.Errorf("%s: at work with a pause of %v", name, paused)
			}
		}
		pass, working := e.pass(a.now, a.b.board.view.all())
		if a.row(0).Phase != plan.Submitting || working != 0 || pass.Ailing != len(rows) || pass.Unfinished != 0 {
			t.Errorf("%s: after %d tries %d reasons to stay, %+v", name, len(a.submitted), working, pass)
		}
	}
}
