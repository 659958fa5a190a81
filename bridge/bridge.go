package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Bridge is one bridge. Its exported fields are set before Run or Open, and not changed after.
//
// Run does everything. Its parts, Open, Step, Do, Observe, Listen, ReadTurn, Measure, Changes,
// CheckIn, Prove, Answered and Unanswered, are exported for a caller that drives a bridge through
// simulated time.
type Bridge struct {
	Policy plan.Policy
	// Name is the bridge's name; its worker identities are Name-QUEUE.
	Name string
	// Hostname is the name of the bridge's machine.
	Hostname string
	// SharedDisk is set if Stager and Collector use the server's own store: the server then
	// sends the places of contents in it.
	SharedDisk bool

	Ledger Ledger
	// Scheduler is Slurm. The jobs of its snapshots come in the order of their ids, as an
	// sbatch.Observer's do.
	Scheduler sbatch.Scheduler
	Service   BundleService
	Spool     Spool
	// Gauge measures the shared disk; nil for no measurement.
	Gauge     Gauge
	Stager    Stager
	Collector Collector
	Log       *slog.Logger
	// Now reads the clock: wall time without a monotonic part, which does not jump while the
	// bridge lives, even if the machine's clock is set.
	Now func() time.Time
	// Trace is called by Step with each decision, and TracePolicy with the policy of those that
	// follow when that has changed, if they are not nil.
	Trace       func(plan.Decision)
	TracePolicy func(plan.Policy)
	// Settings asks Slurm for its settings; nil if Policy has all that matters of them. Adapt
	// changes the policy of decisions by them.
	Settings func(ctx context.Context) (sbatch.Settings, error)
	Adapt    func(p *plan.Policy, s sbatch.Settings)

	// ObserveEvery is the pause between two snapshots of Slurm, DoorbellEvery between two
	// readings of the doorbell, and ReadEvery the least between two readings of one row's usage.
	ObserveEvery, DoorbellEvery, ReadEvery time.Duration

	// Ports reaches the ports of bundles that run on the bridge's own host; nil if none do.
	Ports Ports
	// Standalone makes the bridge a stand-alone worker; nil for a bridge.
	Standalone *Standalone

	// AtOnce is how many effects of a kind run at once; nil for the function AtOnce. Pace is how
	// often Slurm gets a request of a kind; the zero Pace is DefaultPace.
	AtOnce func(plan.Kind) int
	Pace   Pace

	// Only Step uses these.
	deciding   plan.Policy // Policy, changed by Slurm's settings
	followed   *sbatch.Settings
	shared     bool // submissions and cancellations share a small bound of the controller
	rows       rows
	submits    *rate.Limiter
	cancels    *rate.Limiter
	generation int64                      // the last number given to a submission
	turns      plan.Turns                 // of submissions
	observed   bool                       // Slurm has been seen as a whole since the start
	rested     bool                       // the rows that were done at that time rest
	asked      time.Time                  // when the newest snapshot was asked for
	shown      map[sbatch.JobID]time.Time // the jobs of that snapshot, and when they were submitted
	held       []plan.Effect              // effects that wait: for a snapshot, the pace, or a command that runs
	found      plan.OrphanJobs            // orphan jobs
	low        *string                    // plan.LowWater.Low; nil while it is not known
	health     health

	trials  trials
	life    life
	gauged  gauged
	beat    heartbeat
	inbox   inbox
	active  activeEffects
	places  places
	view    view
	reports reports
}

// Run works until ctx ends, which is no error. Jobs in Slurm go on then, and the next Run
// adopts them. Run fails if the ledger cannot be read or written, if the ledger is older than
// Slurm's jobs (plan.ErrOutdated), and if the server refuses the bridge's credentials.
func (b *Bridge) Run(ctx context.Context) error {
	err := b.work(ctx)
	if b.Standalone != nil && ctx.Err() != nil && !b.view.answeredAt().IsZero() {
		b.sayGoodbye(context.WithoutCancel(ctx))
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, errStopped) {
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
		if err := b.Measure(ctx, b.Now()); err != nil { // before the first check-in
			b.Log.WarnContext(ctx, "cannot see how full the shared disk is", errorAttr(err))
		}
	}
	b.firstSurvey(ctx)
	g, ctx := errgroup.WithContext(ctx)
	runner := newRunner(ctx, b, g)
	g.Go(func() error { return b.loop(ctx, runner) })
	g.Go(func() error { return b.watchSlurm(ctx) })
	g.Go(func() error { return b.watchDoorbell(ctx) })
	g.Go(func() error { return b.pollRecords(ctx) })
	g.Go(func() error { return b.watchNodes(ctx) })
	if b.Gauge != nil {
		g.Go(func() error { return b.watchDisk(ctx) })
	}
	for _, q := range b.Policy.Queues {
		g.Go(func() error { return b.keepCheckedIn(ctx, g, q) })
	}
	if b.Standalone != nil {
		g.Go(func() error { return b.watchStop(ctx) })
	}
	return g.Wait()
}

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
func (b *Bridge) Identity(queue string) string {
	return cmp.Or(b.Policy.Queues[queue].Identity, b.Name+"-"+queue)
}
