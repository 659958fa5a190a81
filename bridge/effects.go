package bridge

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// running are the effects that were wanted and have not ended: at most one of
// a kind for an attempt of a bundle.
type running struct {
	mu      sync.Mutex
	effects map[effectKey]runningEffect
}

// effectKey has the attempt, so that an effect of an attempt that was given up
// and hangs does not stand in the way of the next one's. A job that no row
// stands for is its own key.
type effectKey struct {
	kind    plan.Kind
	bundle  string
	attempt int
	stray   string
}

type runningEffect struct {
	phase  plan.Phase
	cancel context.CancelFunc // nil before it is started
}

func keyOf(e plan.Effect) effectKey {
	key := effectKey{kind: e.Kind, bundle: e.Row.Bundle, attempt: e.Row.Attempt}
	if e.Row.Bundle == "" {
		key.stray = e.Row.Job.ID.String()
	}
	return key
}

// begin says whether the effect may be started now, and counts it as running
// then.
func (r *running) begin(e plan.Effect) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := keyOf(e)
	if _, ok := r.effects[key]; ok {
		return false
	}
	if r.effects == nil {
		r.effects = map[effectKey]runningEffect{}
	}
	r.effects[key] = runningEffect{phase: e.Row.Phase}
	return true
}

func (r *running) cancelBy(e plan.Effect, cancel context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	running := r.effects[keyOf(e)]
	running.cancel = cancel
	r.effects[keyOf(e)] = running
}

func (r *running) end(e plan.Effect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.effects, keyOf(e))
}

// outlived cancels the long effects of a row that has left the phase in which
// they were wanted.
func (r *running) outlived(row *plan.Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range []plan.Kind{plan.Stage, plan.Collect} {
		e, ok := r.effects[effectKey{kind: k, bundle: row.Bundle, attempt: row.Attempt}]
		if ok && e.phase != row.Phase && e.cancel != nil {
			e.cancel()
		}
	}
}

// runner does effects in the background, only so many of a kind at once.
type runner struct {
	ctx    context.Context //nolint:containedctx // the life of Run, in which effects are started one by one
	bridge *Bridge
	group  *errgroup.Group
	limits map[plan.Kind]*semaphore.Weighted
}

func newRunner(ctx context.Context, b *Bridge, g *errgroup.Group) *runner {
	r := &runner{ctx: ctx, bridge: b, group: g, limits: map[plan.Kind]*semaphore.Weighted{}}
	for _, k := range plan.Kinds() {
		r.limits[k] = semaphore.NewWeighted(AtOnce(k))
	}
	return r
}

// AtOnce is how many effects of a kind run at once. Slurm is asked one thing
// at a time. Bundles that are staged wait for downloads, often for the same one,
// and package staging bounds those: there is room for all that memory bears, so
// that who waits does not keep from working who needs nothing that is missing.
func AtOnce(k plan.Kind) int64 {
	switch k {
	case plan.Submit, plan.Cancel, plan.QueryAccounting:
		return 1
	case plan.Stage:
		return 2048
	case plan.Collect:
		return 4
	case plan.Claim, plan.Prepare, plan.ReadRecords, plan.Fence, plan.Confirm, plan.Release, plan.Forget:
	}
	return 8
}

// start does an effect in the background.
func (r *runner) start(e plan.Effect) {
	ctx, cancel := context.WithCancel(r.ctx)
	r.bridge.running.cancelBy(e, cancel)
	r.group.Go(func() error {
		defer cancel()
		if r.limits[e.Kind].Acquire(ctx, 1) != nil {
			r.bridge.ended(e, nothing)
			return nil
		}
		tell := r.bridge.Do(ctx, e)
		r.limits[e.Kind].Release(1)
		tell()
		return nil
	})
}

// full says whether an error is that a disk, or a quota, has no room, and gives
// its words for that.
func full(err error) (syscall.Errno, bool) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, errno) {
			return errno, true
		}
	}
	return 0, false
}

// outcome is what an error says to a row.
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
	var outage interface{ Outage() bool }
	if errors.As(err, &outage) {
		o.Outage = outage.Outage()
	}
	var patient interface{ RetryAfter() time.Duration }
	if errors.As(err, &patient) {
		o.After = patient.RetryAfter()
	}
	var answer *codalab.Error
	if errors.As(err, &answer) {
		o.Gone = answer.Status == http.StatusNotFound
	}
	return o
}
