package bridge

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Config has all that a bridge is built from. It is set before Run or Open, and not changed after.
type Config struct {
	Policy plan.Policy
	// Name is the bridge's name; its worker ids are Name-QUEUE.
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
	// Owners knows the owners of bundles, for a server whose offers do not name them; nil if their names do not matter.
	Owners OwnerService
	// Secrets gives bundles their secrets; nil if the bridge takes no bundle that names any.
	Secrets *Secrets
	Spool   Spool
	Carrier Carrier
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
	// Count is called by Step with the row before and after each decision, and the decision's news; nil for no call.
	// It must not change or keep them.
	Count func(before, after *plan.Row, news *plan.News)
	// Settings asks Slurm for its settings; nil if Policy has all that matters of them. Adapt
	// changes the policy of decisions by them.
	Settings func(ctx context.Context) (sbatch.Settings, error)
	Adapt    func(p *plan.Policy, s sbatch.Settings)
	// Turns asks Slurm for the places of pending jobs among those of all users; nil if they are of no interest.
	Turns func(ctx context.Context, ids []sbatch.JobID) (map[sbatch.JobID]sbatch.Turn, error)
	// Describe asks Slurm for a job that can never start, which the site may have changed; nil if nobody changes jobs.
	Describe func(ctx context.Context, id sbatch.JobID) (sbatch.Details, error)

	// Limits asks Slurm for the limits of its QOS and associations; nil if they are of no interest.
	Limits LimitSource

	// ObserveEvery is the pause between two snapshots of Slurm, DoorbellEvery between two
	// readings of the doorbell, and ReadEvery the least between two readings of one row's usage.
	ObserveEvery, DoorbellEvery, ReadEvery time.Duration

	// Ports reaches the ports of bundles that run on the bridge's own host; nil if none do.
	Ports Ports
	// Standalone makes the bridge a stand-alone worker; nil for a bridge.
	Standalone *Standalone
	// Once makes it end after a pass; nil for a bridge that works until its context ends.
	Once *Once

	// AtOnce bounds the effects of a kind that run at once; nil for the function AtOnce. Pace bounds the
	// requests of a kind to Slurm; the zero Pace is DefaultPace.
	AtOnce func(plan.Kind) int
	Pace   Pace
}

// WorkerID returns a queue's worker id at the server.
func (c *Config) WorkerID(queue string) string {
	return cmp.Or(c.Policy.Queues[queue].WorkerID, c.Name+"-"+queue)
}

// Bridge is one bridge.
//
// Run does everything. Its parts, Open, Step, Do, Enter, Observe, AskSettings, AskLimits, Listen, ReadTurn, Measure,
// WithdrawSecrets, FindMembers, RemoveMembers, Changes, CheckIn, Prove, NoteAnswer and NoteUnanswered, are exported for a
// caller that drives a bridge through simulated time.
//
// Data flows in a circle. The watchers put news into the inbox. The decider reads it, decides rows, shows
// them on the board, and returns effects. The doer does these, and puts their outcomes into the inbox. The
// watchers and the check-ins read the board, and nothing of the decider.
type Bridge struct {
	Config

	inForce   inForce
	inbox     inbox
	board     board
	contact   contact
	stray     strayArrays
	condition condition
	life      life
	// limitsWanted is set if Slurm has refused a job for a limit, so that the use of limits is asked for soon.
	limitsWanted atomic.Bool

	// Open makes these.
	decider      decider
	doer         doer
	places       places
	slurm        slurmWatch
	nodes        nodeWatch
	limits       limitWatch
	disk         diskWatch
	records      recordReader
	secrets      secretWatch
	members      memberWatch
	queueWorkers queueWorkers
}

// Open takes the ledger, reads it, and gives each row its first news. It is called once, before
// Step.
func (b *Bridge) Open(ctx context.Context) error {
	if err := b.Ledger.Take(ctx); err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	b.assemble()
	if err := b.decider.open(ctx); err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	return nil
}

// Drain lets the bridge claim no more bundles of these queues: words has the reason for each, as it may follow a
// colon. It replaces what was set before; a queue without words takes bundles again. The bridge goes on with the
// bundles that it has. Drain may be called at any time, and before Run for a bridge that starts drained.
func (b *Bridge) Drain(words map[string]string) {
	b.condition.drain(words)
	b.board.showDrained(words)
}

// assemble makes the bridge's parts.
func (b *Bridge) assemble() {
	b.inForce.set(&b.Policy)
	b.inbox.init()
	b.contact.init()
	b.life.standalone = b.Standalone
	b.places = newPlaces(b.atOnce, b.Collector, &b.inForce)
	b.records = recordReader{spool: b.Spool, every: b.ReadEvery, view: &b.board.view, contact: &b.contact, inbox: &b.inbox, now: b.Now}
	b.slurm = slurmWatch{
		scheduler: b.Scheduler, settings: b.Settings, turns: turnWatch{ask: b.Turns, view: &b.board.view, inbox: &b.inbox, log: b.Log}, bridge: b.Policy.Bridge, every: b.ObserveEvery,
		inForce: &b.inForce, view: &b.board.view, capacity: &b.board.capacity, contact: &b.contact, inbox: &b.inbox, condition: &b.condition, log: b.Log,
	}
	b.nodes = nodeWatch{scheduler: b.Scheduler, inForce: &b.inForce, capacity: &b.board.capacity, inbox: &b.inbox, log: b.Log}
	b.limits = limitWatch{
		source: b.Limits, inForce: &b.inForce, view: &b.board.view, contact: &b.contact, wanted: &b.limitsWanted, inbox: &b.inbox, condition: &b.condition,
		bound: b.nodes.bound, log: b.Log,
	}
	b.slurm.limits = &b.limits
	b.disk = diskWatch{gauge: b.Gauge, inForce: &b.inForce, board: &b.board, inbox: &b.inbox, condition: &b.condition, log: b.Log, now: b.Now}
	b.doer = doer{
		inForce: &b.inForce, workerID: b.Config.WorkerID, hostname: b.Hostname, remote: b.remote(),
		service: b.Service, claims: newClaims(b.Service, b.Now), owners: ownerNames{service: b.Owners, now: b.Now}, secrets: b.Secrets, scheduler: b.Scheduler, spool: b.Spool, carrier: b.Carrier, stager: b.Stager, collector: b.Collector, alone: turns.New(b.atOnce(plan.Collect)),
		trials:  trials{scheduler: b.Scheduler, describe: b.Describe, inForce: &b.inForce, capacity: &b.board.capacity, now: b.Now},
		records: &b.records, reports: &b.board.reports, inbox: &b.inbox, log: b.Log, now: b.Now,
	}
	b.secrets = secretWatch{secrets: b.Secrets, inForce: &b.inForce, view: &b.board.view, now: b.Now, log: b.Log}
	b.members = memberWatch{spool: b.Spool, inForce: &b.inForce, contact: &b.contact, stray: &b.stray, view: &b.board.view, now: b.Now, log: b.Log}
	b.queueWorkers = queueWorkers{config: &b.Config, inForce: &b.inForce, board: &b.board, life: &b.life, condition: &b.condition, inbox: &b.inbox}
	b.decider = newDecider(&b.Config, &b.inForce, &b.inbox, &b.board, &b.contact, &b.stray, &b.life, &b.condition)
	b.decider.limits.wanted = &b.limitsWanted
}

// atOnce returns the bound of the effects of a kind that run at once.
func (c *Config) atOnce(k plan.Kind) int {
	if c.AtOnce == nil {
		return AtOnce(k)
	}
	return c.AtOnce(k)
}

// remote returns the name that reports give to the place of a run; empty for the worker id.
func (c *Config) remote() string {
	if c.Standalone == nil {
		return ""
	}
	return c.Standalone.Remote
}
