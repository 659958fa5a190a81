package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// Bridge is one bridge at work. Its exported fields are set before Run, or
// Open, and not changed after.
//
// Run is the whole of it. Its parts, Open, Step, Do, InFlight, Observe, Listen,
// ReadTurn, Measure, Changes, CheckIn, Prove, Answered and Unanswered, are there for
// a caller that drives a bridge through simulated time.
type Bridge struct {
	Policy plan.Policy
	// Name is the bridge's own; its worker identities are Name-QUEUE.
	Name string
	// Hostname is that of the machine it runs on.
	Hostname string
	// SharedDisk says that Stager and Collector use the server's own store, so
	// that the server is to say where in it things lie.
	SharedDisk bool

	Ledger    Ledger
	Scheduler Scheduler
	Service   BundleService
	Spool     Spool
	// Gauge is asked how full the shared disk is; nil where nobody asks.
	Gauge     Gauge
	Stager    Stager
	Collector Collector
	Log       *slog.Logger
	// Now reads the clock: wall time without a monotonic part, which does not
	// jump while the bridge lives, whoever sets the machine's clock.
	Now func() time.Time
	// Trace, where it is not nil, is called by Step with each decision.
	Trace func(plan.Decision)

	// ObserveEvery is the pause between two snapshots of Slurm, LookEvery
	// that between two looks at the doorbell, ReadEvery that between two
	// readings of one running row's status.
	ObserveEvery, LookEvery, ReadEvery time.Duration

	// Step's own.
	rows       rows
	submits    pacer
	cancels    pacer
	generation int64           // the last number given to a submission
	observed   bool            // Slurm was seen as a whole since the start
	held       []plan.Effect   // what waits for that, or for its turn
	found      plan.OrphanJobs // jobs for which no row stands
	low        *string         // why nothing new may be put onto the shared disk; nil while that is not known

	gauged  gauged
	pulse   heartbeat
	inbox   inbox
	running running
	view    view
}

// Run works until ctx ends, which is the ordinary end and no error; what runs
// in Slurm then goes on, and the next Run takes it up. It fails when the
// ledger cannot be read or written, when it is older than Slurm's jobs
// (plan.ErrOutdated), and when the server refuses the bridge's credentials.
func (b *Bridge) Run(ctx context.Context) error {
	err := b.work(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (b *Bridge) work(ctx context.Context) error {
	if err := b.Open(ctx); err != nil {
		return err
	}
	if b.Gauge != nil {
		if err := b.Measure(b.Now()); err != nil { // before the first check-in
			b.Log.WarnContext(ctx, "cannot see how full the shared disk is", errorAttr(err))
		}
	}
	b.firstSurvey(ctx)
	g, ctx := errgroup.WithContext(ctx)
	runner := newRunner(ctx, b, g)
	g.Go(func() error { return b.loop(ctx, runner) })
	g.Go(func() error { return b.observing(ctx) })
	g.Go(func() error { return b.listening(ctx) })
	g.Go(func() error { return b.reading(ctx) })
	g.Go(func() error { return b.surveying(ctx) })
	if b.Gauge != nil {
		g.Go(func() error { return b.measuring(ctx) })
	}
	for _, q := range b.Policy.Queues {
		g.Go(func() error { return b.checkingIn(ctx, g, q) })
	}
	return g.Wait()
}

// loop steps whenever there is news, or a row is due.
func (b *Bridge) loop(ctx context.Context, r *runner) error {
	for {
		effects, wait, err := b.Step(ctx, b.Now())
		if err != nil {
			return err
		}
		for _, e := range effects {
			r.start(e) //nolint:contextcheck // the runner has it
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

// Identity is the worker identity of a queue.
func (b *Bridge) Identity(queue string) string { return b.Name + "-" + queue }
