package bridge

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// admit returns the effects to be started. At most one of a kind runs for an attempt of a
// bundle. admit does Forget itself, but not while another effect of the row runs: the outcome of that
// one could reach another bundle of the UUID. When it has ended the row is decided again.
func (b *Bridge) admit(ctx context.Context, s *step) ([]plan.Effect, error) {
	wanted := b.stillWanted()
	for _, e := range s.effects {
		if i, ok := s.places[e.Row.Bundle]; ok {
			e.Row = s.rows[i]
		}
		switch {
		case e.Kind == plan.Forget && b.active.has(e.Row.Bundle):
		case e.Kind == plan.Forget:
			if err := b.Ledger.Delete(ctx, *e.Row); err != nil {
				return nil, fmt.Errorf("forget bundle: %w", err)
			}
			b.rows.remove(e.Row.Bundle)
			b.view.remove(e.Row)
			b.reports.forget(e.Row)
		case b.active.begin(e):
			wanted = append(wanted, e)
		}
	}
	return b.startNow(s.now, wanted), nil
}

// stillWanted returns the held effects that their rows still want, and drops the others.
func (b *Bridge) stillWanted() []plan.Effect {
	var wanted []plan.Effect
	for _, e := range b.held {
		if e.Row.Bundle == "" { // an orphan job has no row
			if _, ok := b.found[e.Row.Job.ID]; !ok {
				b.active.end(e)
				continue
			}
		} else {
			r := b.rows.get(e.Row.Bundle)
			if r == nil || r.Phase != e.Row.Phase || r.Attempt.Number != e.Row.Attempt.Number || e.Kind == plan.Cancel && !r.CancelsJob() {
				b.active.end(e)
				continue
			}
			e.Row = r
		}
		wanted = append(wanted, e)
	}
	return wanted
}

// mayBeAnothers reports whether the job of a row's id may be another's: a controller that has lost its
// state uses ids again. It may be if the last snapshot shows a job of that id that was submitted at
// another time, or shows none and is late enough to prove that the row's is gone, or if another row has
// the job. It may also be if the row has the id from a worker's record alone: had the row taken the job
// that the snapshot shows for its own, it would have the time of submission.
func (b *Bridge) mayBeAnothers(r *plan.Row) bool {
	submitted, ok := b.shown[r.Job.ID]
	switch {
	case ok && !submitted.Equal(r.Job.Submitted):
		return true
	case !ok && b.asked.After(r.SubmittedAt.Add(b.deciding.SubmitGrace)):
		return true
	}
	return b.rows.otherHasJob(r)
}

// shows reports whether the last snapshot shows a job of that id.
func (b *Bridge) shows(j sbatch.Job) bool {
	_, ok := b.shown[j.ID]
	return ok
}

// startNow returns the effects that may be started now, and holds the others. Effects that one
// command of Slurm can do for many rows become one effect.
func (b *Bridge) startNow(now time.Time, wanted []plan.Effect) []plan.Effect {
	b.held = nil
	var started []plan.Effect
	calls := map[plan.Kind]int{} // by kind, the place in started of its command
	for _, e := range wanted {
		at, begun := calls[e.Kind]
		switch {
		case e.Kind == plan.Cancel && b.mayBeAnothers(e.Row): // the row hears of the snapshot, and may want it again
			b.active.end(e)
		case e.Kind == plan.Cancel && !b.shows(e.Row.Job): // the next snapshot does, or proves that it is gone
			b.held = append(b.held, e)
		case begun && len(started[at].More)+1 < b.inOneCall(e.Kind):
			started[at].More = append(started[at].More, e.Row)
		case begun || !b.mayStart(now, e):
			b.held = append(b.held, e)
		default:
			if forManyRows(e.Kind) {
				calls[e.Kind] = len(started)
				b.active.calls[e.Kind] = true
			}
			started = append(started, e)
		}
	}
	return started
}

// inOneCall bounds the rows for which one command of Slurm is run: the length of its command line, and
// what the controller or the database does at a time.
func (b *Bridge) inOneCall(k plan.Kind) int {
	if k == plan.Cancel && b.followed != nil && b.followed.RateLimit.PerSecond > 0 {
		return cancelRequests
	}
	return 100
}

// forManyRows reports whether one command of Slurm does an effect of a kind for many rows. One such
// command runs at a time, so that all effects that are wanted meanwhile go into the next one.
func forManyRows(k plan.Kind) bool { return k == plan.Cancel || k == plan.QueryAccounting }

// fresh is the greatest age of the snapshot by which jobs are cancelled. Slurm does not give an id to
// another job so soon.
const fresh = 30 * time.Second

// mayStart reports whether an effect of a kind may be started now, and counts it as started. An
// irrevocable effect waits until Slurm has been seen; submissions and cancellations keep to the
// pace. Jobs are cancelled by their ids as the newest snapshot shows them, so it must be fresh.
func (b *Bridge) mayStart(now time.Time, e plan.Effect) bool {
	switch {
	case !b.observed && irrevocable(e.Kind), b.active.calls[e.Kind]:
		return false
	case e.Kind == plan.Submit:
		tooLate := now.Sub(e.Row.SubmittedAt) > plan.SubmitWithin // then sbatch is not run
		return tooLate || b.submits.AllowN(now, 1)
	case e.Kind == plan.Cancel:
		return !b.view.unreachable.Load() && now.Sub(b.asked) <= fresh && b.allowCancel(now)
	}
	return true
}

// count is how many of the effects are of a kind.
func count(effects []plan.Effect, k plan.Kind) int {
	n := 0
	for _, e := range effects {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// irrevocable reports whether an effect waits until Slurm has been seen: only then is it known
// that the ledger is not older than Slurm's jobs.
func irrevocable(k plan.Kind) bool {
	switch k {
	case plan.Submit, plan.Cancel, plan.Release:
		return true
	case plan.Claim, plan.Stage, plan.Prepare, plan.AskQueue, plan.QueryAccounting, plan.ReadRecords, plan.Fence, plan.Collect, plan.Confirm, plan.Forget:
	}
	return false
}

// Pace is what a controller bears of one kind of request, submissions or cancellations: so many a
// second in the long run, and so many at once after a pause.
type Pace struct {
	PerSecond float64
	Burst     int
}

// DefaultPace is what any controller bears.
func DefaultPace() Pace { return Pace{PerSecond: 2, Burst: 20} }

func (p Pace) limiter() *rate.Limiter {
	p = cmp.Or(p, DefaultPace())
	return rate.NewLimiter(rate.Limit(p.PerSecond), p.Burst)
}

// budget is how many requests may be made now.
func budget(pace *rate.Limiter, now time.Time) int { return max(0, int(pace.TokensAt(now))) }

// refill is how long it takes until a pacer without budget allows another request.
func refill(pace *rate.Limiter, now time.Time) time.Duration {
	missing := max(1-pace.TokensAt(now), 0.05)
	return time.Duration(missing / float64(pace.Limit()) * float64(time.Second))
}
