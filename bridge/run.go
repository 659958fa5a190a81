package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// Run works until ctx ends, or until its pass has ended (Once), which is no error. Jobs in Slurm go on then, and the next Run
// adopts them. Run fails if the ledger cannot be read or written, if the ledger is older than
// Slurm's jobs (plan.ErrOutdated), and if the server refuses the bridge's credentials.
func (b *Bridge) Run(ctx context.Context) error {
	err := b.work(ctx)
	// Only a signal, or the end of a pass, is a reason to check out. A bridge whose shared directory or ledger another one has taken must
	// not speak for that one's workers.
	if (errors.Is(context.Cause(ctx), context.Canceled) || errors.Is(err, errPassEnded)) && !b.contact.answeredAt().IsZero() {
		b.queueWorkers.sayGoodbye(context.WithoutCancel(ctx))
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, errEnded) || errors.Is(err, errPassEnded) {
		return nil
	}
	return err
}

func (b *Bridge) work(ctx context.Context) error {
	b.life.began = b.Now()
	if err := b.Open(ctx); err != nil {
		return err
	}
	if b.Gauge != nil {
		if err := b.disk.measure(ctx, b.Now()); err != nil { // before the first check-in
			b.Log.WarnContext(ctx, "cannot see how full the shared disk is", errorAttr(err))
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	if b.Gauge != nil { // before the survey: if the disk hangs, the start of a program may hang, too
		g.Go(func() error { return b.disk.run(ctx) })
	}
	b.nodes.first(ctx)
	runner := b.runner(ctx, g)
	g.Go(func() error { return b.loop(ctx, runner) })
	g.Go(func() error { return b.slurm.run(ctx, b.Now) })
	g.Go(func() error { return b.records.watchDoorbell(ctx, b.DoorbellEvery, b.Log) })
	g.Go(func() error { return b.records.poll(ctx) })
	g.Go(func() error { return b.nodes.run(ctx, b.Now) })
	if b.Limits != nil {
		g.Go(func() error { return b.limits.run(ctx, b.Now) })
	}
	if b.Secrets != nil {
		g.Go(func() error { return b.secrets.run(ctx) })
	}
	g.Go(func() error { return b.members.run(ctx) })
	g.Go(func() error { return b.serveQueues(ctx, g) })
	if b.Once != nil {
		end := passEnder{once: b.Once, inForce: &b.inForce, board: &b.board, contact: &b.contact, condition: &b.condition, log: b.Log, now: b.Now}
		g.Go(func() error { return end.run(ctx) })
	}
	if b.Standalone != nil {
		stop := ender{life: &b.life, board: &b.board, contact: &b.contact, inbox: &b.inbox, log: b.Log, now: b.Now}
		g.Go(func() error { return stop.run(ctx) })
	}
	return g.Wait()
}

// runner returns a runner of effects, whose goroutines are the group's.
func (b *Bridge) runner(ctx context.Context, g *errgroup.Group) *runner {
	return &runner{ctx: ctx, group: g, active: &b.decider.starter.active, places: &b.places, doer: &b.doer, inbox: &b.inbox}
}

// checkIns returns the check-ins of a queue, whose goroutines are the group's.
func (b *Bridge) checkIns(g *errgroup.Group, q plan.Queue) *checkIns {
	c := &checkIns{
		queueWorkers: &b.queueWorkers, contact: &b.contact, condition: &b.condition, group: g, queue: q, now: b.Now, log: b.Log,
		answers: make(chan answer), proved: make(chan struct{}),
		replier: &replier{
			inForce: &b.inForce, workerID: b.Config.WorkerID, service: b.Service, collector: b.Collector, spool: b.Spool,
			ports: b.Ports, ledger: b.Ledger, view: &b.board.view, inbox: &b.inbox, log: b.Log,
		},
	}
	if b.Standalone != nil {
		c.answerPause, c.deniedFor, c.standalone = b.Standalone.CheckInPause, b.Standalone.DeniedFor, true
	}
	return c
}

// busyStepPause is the pause after a step that decided manyRows.
const (
	manyRows      = 8
	busyStepPause = 10 * time.Millisecond
)

// loop steps whenever there is news or a row is due.
func (b *Bridge) loop(ctx context.Context, r *runner) error {
	for {
		effects, wait, err := b.Step(ctx, b.Now())
		if err != nil {
			return err
		}
		for _, e := range effects {
			r.start(e) //nolint:contextcheck // the runner has the context
		}
		if b.decider.decided >= manyRows { // so that the next step has as many, and not a write to the ledger for each few
			_ = pause.For(ctx, busyStepPause) // below it ends with ctx
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("step: %w", ctx.Err())
		case <-b.inbox.arrived:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// Step decides the rows that have news or are due, and saves those that changed. It returns the effects to be
// started now, each with Do, and the time after which the next Step is due without news. It waits for the
// ledger only, and is not safe for concurrent use. After an error no effect may be started: the ledger lacks
// rows that the bridge has decided.
func (b *Bridge) Step(ctx context.Context, now time.Time) ([]plan.Effect, time.Duration, error) {
	return b.decider.step(ctx, now)
}
