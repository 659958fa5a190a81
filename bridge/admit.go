package bridge

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// admit returns the effects to be started. At most one of a kind runs for an attempt of a
// bundle. Forget is the ledger's, and done at once, but not while another effect of the row runs: its
// outcome could reach another bundle of the UUID. Its end has the row decided again.
func (b *Bridge) admit(ctx context.Context, s *step) ([]plan.Effect, error) {
	admitted := b.releaseHeld(s.now)
	for _, e := range s.effects {
		if i, ok := s.places[e.Row.Bundle]; ok {
			e.Row = s.rows[i]
		}
		switch {
		case e.Kind == plan.Forget && b.active.has(e.Row):
		case e.Kind == plan.Forget:
			if err := b.Ledger.Delete(ctx, *e.Row); err != nil {
				return nil, fmt.Errorf("forget bundle: %w", err)
			}
			b.rows.remove(e.Row.Bundle)
			b.view.remove(*e.Row)
		case !b.active.begin(e):
		case !b.mayStart(s.now, e):
			b.held = append(b.held, e)
		default:
			admitted = append(admitted, e)
		}
	}
	return admitted, nil
}

// mayStart reports whether an effect of a kind may be started now, and counts it as started. An
// irrevocable effect waits until Slurm has been seen; submissions and cancellations keep to the
// pace.
func (b *Bridge) mayStart(now time.Time, e plan.Effect) bool {
	if !b.observed && irrevocable(e.Kind) {
		return false
	}
	switch e.Kind { //nolint:exhaustive // the others do not ask the controller
	case plan.Submit:
		tooLate := now.Sub(e.Row.SubmittedAt) > plan.SubmitWithin // then sbatch is not run
		return tooLate || b.submits.AllowN(now, 1)
	case plan.Cancel:
		return b.allowCancel(now)
	}
	return true
}

// releaseHeld returns the held effects that may be started now. It drops those of rows that
// have moved on.
func (b *Bridge) releaseHeld(now time.Time) []plan.Effect {
	var admitted, held []plan.Effect
	for _, e := range b.held {
		if e.Row.Bundle != "" { // an orphan job has none
			r := b.rows.get(e.Row.Bundle)
			if r == nil || r.Phase != e.Row.Phase || r.Attempt.Number != e.Row.Attempt.Number {
				b.active.end(e)
				continue
			}
			e.Row = r
		}
		if b.mayStart(now, e) {
			admitted = append(admitted, e)
		} else {
			held = append(held, e)
		}
	}
	b.held = held
	return admitted
}

// heldOf is how many effects of a kind are held.
func (b *Bridge) heldOf(k plan.Kind) int {
	n := 0
	for _, e := range b.held {
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
	case plan.Claim, plan.Stage, plan.Prepare, plan.QueryAccounting, plan.ReadRecords, plan.Fence, plan.Collect, plan.Confirm, plan.Forget:
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
