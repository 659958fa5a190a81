package bridge

import (
	"context"
	"errors"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// activeEffects are the effects that a step has begun and of which no later step has read the outcome.
// An attempt of a bundle has at most one of each kind. Only Step, and the start of effects after it, use
// them.
type activeEffects struct {
	effects map[effectKey]runningEffect
	// calls are the kinds for which a command for many rows runs.
	calls map[plan.Kind]bool
}

// effectKey identifies an effect. It has the attempt, so that an effect that hangs does not
// block the next attempt's. An orphan job has no bundle; its id is in the key.
type effectKey struct {
	kind    plan.Kind
	bundle  string
	attempt int
	orphan  string
	shared  plan.SubmissionName // of a submission that rows share
}

type runningEffect struct {
	phase   plan.Phase
	givesUp bool               // of an upload: it sends the end of the output
	cancel  context.CancelFunc // nil before it is started
}

func keyOf(e plan.Effect) effectKey {
	if e.Submission != nil {
		return effectKey{kind: e.Kind, shared: e.Submission.Name}
	}
	key := effectKey{kind: e.Kind, bundle: e.Row.Bundle, attempt: e.Row.Attempt.Number}
	if e.Row.Bundle == "" {
		key.orphan = e.Row.Job.ID.String()
	}
	return key
}

// begin reports whether the effect may be started, and counts it as active then.
func (a *activeEffects) begin(e plan.Effect) bool {
	key := keyOf(e)
	if _, ok := a.effects[key]; ok {
		return false
	}
	if a.effects == nil {
		a.effects, a.calls = map[effectKey]runningEffect{}, map[plan.Kind]bool{}
	}
	a.effects[key] = runningEffect{phase: e.Row.Phase, givesUp: e.Row.GivesUp}
	return true
}

// has reports whether an effect of a bundle is active, of any attempt. It looks at all effects.
func (a *activeEffects) has(bundle string) bool {
	for key := range a.effects {
		if key.bundle == bundle {
			return true
		}
	}
	return false
}

func (a *activeEffects) cancelBy(e plan.Effect, cancel context.CancelFunc) {
	running := a.effects[keyOf(e)]
	running.cancel = cancel
	a.effects[keyOf(e)] = running
}

func (a *activeEffects) end(e plan.Effect) { delete(a.effects, keyOf(e)) }

// cancelOutdated cancels the long effects of a row that has left the phase in which it wanted
// them, and the upload of results that a user has given up.
func (a *activeEffects) cancelOutdated(row *plan.Row) {
	for _, k := range []plan.Kind{plan.Stage, plan.Carry, plan.Collect} {
		e, ok := a.effects[effectKey{kind: k, bundle: row.Bundle, attempt: row.Attempt.Number}]
		if ok && (e.phase != row.Phase || row.GivesUp && !e.givesUp) && e.cancel != nil {
			e.cancel()
		}
	}
}

// runner does effects in the background, a limited number of each kind at once.
type runner struct {
	ctx    context.Context //nolint:containedctx // the life of Run, in which effects are started one by one
	group  *errgroup.Group
	active *activeEffects
	places *places
	doer   *doer
	inbox  *inbox
}

// start does an effect in the background.
func (r *runner) start(e plan.Effect) {
	ctx, cancel := context.WithCancel(r.ctx)
	r.active.cancelBy(e, cancel)
	r.group.Go(func() error {
		defer cancel()
		entered := make(chan struct{})
		leave := r.places.enter(ctx, &e, func() { close(entered) })
		defer leave()
		await(ctx, r.inbox, e, entered)
		if ctx.Err() != nil {
			r.inbox.putEnded(e, none)
			return nil
		}
		tell := r.doer.do(ctx, e)
		leave()
		tell()
		return nil
	})
}

// await waits until an effect has its place or ctx ends. It tells the row if that takes a while.
func await(ctx context.Context, in *inbox, e plan.Effect, entered <-chan struct{}) {
	select {
	case <-entered:
		return
	default:
	}
	if sentence := waits(e.Kind); sentence != "" {
		in.put(e.Row.Bundle, func(n *plan.News) { n.Progress = sentence })
	}
	select {
	case <-entered:
	case <-ctx.Done():
	}
}

// full reports whether an error says that a disk or a quota has no room, with the error number.
func full(err error) (syscall.Errno, bool) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, errno) {
			return errno, true
		}
	}
	return 0, false
}

// outcome returns the outcome of an effect that ended with an error, or nil.
func outcome(err error) plan.Outcome {
	if err == nil {
		return plan.Outcome{}
	}
	o := plan.Outcome{Failure: err.Error()}
	_, o.Full = full(err)
	var transient interface{ Transient() bool }
	if errors.As(err, &transient) {
		o.Final = !transient.Transient()
	}
	var quota interface{ HeldResults() spool.HeldResults }
	if errors.As(err, &quota) {
		held := quota.HeldResults()
		o.Held, o.Final = &held, false
	}
	var outage interface{ Outage() bool }
	if errors.As(err, &outage) {
		o.Outage = outage.Outage()
	}
	var paused interface{ RetryAfter() time.Duration }
	if errors.As(err, &paused) {
		o.After = paused.RetryAfter()
	}
	o.Gone = codalab.IsStatus(err, http.StatusNotFound)
	return o
}
