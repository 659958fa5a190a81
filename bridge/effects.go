package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// effects runs what decisions want of the world, at most one of a kind for an
// attempt of a bundle and only so many of a kind at once.
type effects struct {
	ctx     context.Context //nolint:containedctx // the life of Run, in which effects are started one by one
	group   *errgroup.Group
	mu      sync.Mutex
	running map[effectKey]runningEffect
	limits  map[plan.Kind]*semaphore.Weighted
}

// effectKey has the attempt, so that an effect of an attempt that was given up
// and hangs does not stand in the way of the next one's.
type effectKey struct {
	kind    plan.Kind
	bundle  string
	attempt int
}

type runningEffect struct {
	phase  plan.Phase
	cancel context.CancelFunc
}

// atOnce is how many effects of a kind run at once. Slurm is asked one thing
// at a time.
func atOnce(k plan.Kind) int64 {
	switch k {
	case plan.Submit, plan.Cancel, plan.Account:
		return 1
	case plan.Stage, plan.Collect:
		return 4
	case plan.Claim, plan.Look, plan.Close, plan.Release, plan.Forget:
	}
	return 8
}

func (e *effects) start(ctx context.Context, g *errgroup.Group) {
	e.ctx, e.group = ctx, g
	e.running = map[effectKey]runningEffect{}
	e.limits = map[plan.Kind]*semaphore.Weighted{}
	for _, k := range plan.Kinds() {
		e.limits[k] = semaphore.NewWeighted(atOnce(k))
	}
}

// run starts an effect, unless one of its kind runs for the attempt. do returns
// how to tell the outcome, which is told once the effect does not count as
// running any more: who hears it may want the same again at once.
func (e *effects) run(effect plan.Effect, do func(ctx context.Context) (tell func())) {
	key := effectKey{effect.Kind, effect.Row.Bundle, effect.Row.Attempt}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.running[key]; ok {
		return
	}
	ctx, cancel := context.WithCancel(e.ctx)
	e.running[key] = runningEffect{phase: effect.Row.Phase, cancel: cancel}
	e.group.Go(func() error {
		defer cancel()
		tell := func() {}
		if e.limits[effect.Kind].Acquire(ctx, 1) == nil {
			tell = do(ctx)
			e.limits[effect.Kind].Release(1)
		}
		e.mu.Lock()
		delete(e.running, key)
		e.mu.Unlock()
		tell()
		return nil
	})
}

// outlived cancels the long effects of a row that has left the phase in which
// they were wanted.
func (e *effects) outlived(r plan.Row) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, k := range []plan.Kind{plan.Stage, plan.Collect} {
		if run, ok := e.running[effectKey{k, r.Bundle, r.Attempt}]; ok && run.phase != r.Phase {
			run.cancel()
		}
	}
}

// begin starts one effect. Only Forget, which is the ledger's, is done at
// once.
func (b *Bridge) begin(ctx context.Context, e plan.Effect) error {
	if e.Kind == plan.Forget {
		if err := b.Ledger.Delete(ctx, e.Row); err != nil {
			return fmt.Errorf("forget bundle: %w", err)
		}
		delete(b.rows, e.Row.Bundle)
		b.view.remove(e.Row.Bundle)
		return nil
	}
	b.effects.run(e, func(ctx context.Context) func() { //nolint:contextcheck // an effect lives as long as Run, not as the step that wants it
		outcome := b.do(ctx, e)
		if ctx.Err() != nil && e.Kind != plan.Submit {
			return func() {} // nobody waits for it any more
		}
		b.Log.DebugContext(ctx, "effect ended", slog.String("kind", string(e.Kind)), slog.String("bundle", e.Row.Bundle))
		return func() { b.inbox.put(e.Row.Bundle, outcome) }
	})
	return nil
}

// outcome is what an error says to a row.
func outcome(err error) plan.Outcome {
	if err == nil {
		return plan.Outcome{}
	}
	o := plan.Outcome{Failure: err.Error()}
	var transient interface{ Transient() bool }
	if errors.As(err, &transient) {
		o.Final = !transient.Transient()
	}
	return o
}
