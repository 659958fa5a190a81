package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// Bridge is one bridge at work. Its fields are set before Run and not changed
// after.
type Bridge struct {
	Policy plan.Policy
	// Name is the bridge's own; its worker identities are Name-QUEUE.
	Name string
	// Hostname is that of the machine it runs on.
	Hostname string

	Ledger    Ledger
	Scheduler Scheduler
	Service   BundleService
	Stager    Stager
	Collector Collector
	Log       *slog.Logger

	// ObserveEvery is the pause between two snapshots of Slurm, LookEvery
	// that between two looks at the doorbell, ReadEvery that between two
	// readings of one running row's status.
	ObserveEvery, LookEvery, ReadEvery time.Duration

	rows    map[string]plan.Row // owned by Step
	inbox   inbox
	effects effects
	pacer   pacer
	reports reports
	view    view
}

// Run works until ctx ends, which is the ordinary end and no error; what runs
// in Slurm then goes on, and the next Run takes it up. It fails when the
// ledger cannot be read or written, and when the server refuses the bridge's
// credentials.
func (b *Bridge) Run(ctx context.Context) error {
	err := b.work(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (b *Bridge) work(ctx context.Context) error {
	if err := b.open(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	b.effects.start(ctx, g)
	g.Go(func() error { return b.loop(ctx) })
	g.Go(func() error { return b.observing(ctx) })
	g.Go(func() error { return b.listening(ctx) })
	g.Go(func() error { return b.reading(ctx) })
	for _, q := range b.Policy.Queues {
		g.Go(func() error { return b.checkingIn(ctx, q) })
	}
	return g.Wait() //nolint:wrapcheck // each part says what it was about
}

// open reads the rows and gives each a first, empty piece of news.
func (b *Bridge) open(ctx context.Context) error {
	rows, err := b.Ledger.Rows(ctx)
	if err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	b.rows = make(map[string]plan.Row, len(rows))
	b.inbox.init()
	for _, r := range rows {
		b.rows[r.Bundle] = r
		b.inbox.put(r.Bundle, func(*plan.News) {})
		b.publish(r)
	}
	b.Log.InfoContext(ctx, "bridge started", slog.Int("rows", len(rows)), slog.String("bridge", b.Policy.Bridge))
	return nil
}

// loop steps whenever there is news, or a row is due.
func (b *Bridge) loop(ctx context.Context) error {
	for {
		wait, err := b.Step(ctx, time.Now()) //nolint:forbidigo // the loop is where the clock is read
		if err != nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-b.inbox.arrived:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// idle is the longest time between two steps.
const idle = time.Minute

// Step decides every row that has news or is due, saves those that changed,
// and starts their effects. It returns how long nothing is to be done unless
// news arrives. It is not safe for concurrent use.
func (b *Bridge) Step(ctx context.Context, now time.Time) (time.Duration, error) {
	offers, news := b.inbox.take()
	b.take(now, offers, news)
	d := &decisions{rows: map[string]plan.Row{}, changed: map[string]bool{}}
	for bundle, n := range news {
		if r, ok := b.rows[bundle]; ok {
			b.decide(d, now, r, *n)
		}
	}
	for bundle, r := range b.rows {
		if _, decided := news[bundle]; !decided && due(r, now) {
			b.decide(d, now, r, plan.News{})
		}
	}
	b.batch(d, now)
	if err := b.save(ctx, d); err != nil {
		return 0, err
	}
	for _, e := range d.effects {
		if err := b.begin(ctx, e); err != nil {
			return 0, err
		}
	}
	return b.wait(now), nil
}

// decisions are what one Step came to.
type decisions struct {
	// rows are all rows that were decided, as they are now; changed says
	// which of them are to be saved.
	rows    map[string]plan.Row
	changed map[string]bool
	effects []plan.Effect
}

func due(r plan.Row, now time.Time) bool { return !r.Due.IsZero() && !r.Due.After(now) }

// take makes rows of offered bundles. An offer of a bundle that has a row is
// news to that row.
func (b *Bridge) take(now time.Time, offers []offer, news map[string]*plan.News) {
	for _, o := range offers {
		bundle := o.message.Bundle.UUID
		n := news[bundle]
		if n == nil {
			n = &plan.News{}
			news[bundle] = n
		}
		if _, ok := b.rows[bundle]; ok {
			n.Messages = append(n.Messages, o.message)
			continue
		}
		b.rows[bundle] = plan.NewRow(now, o.queue, o.message)
	}
}

func (b *Bridge) decide(d *decisions, now time.Time, r plan.Row, n plan.News) {
	next, effects := b.Policy.Next(now, r, n)
	before := b.rows[next.Bundle]
	b.rows[next.Bundle] = next
	d.rows[next.Bundle] = next
	if before.Version == 0 || !same(before, next) {
		d.changed[next.Bundle] = true
	}
	d.effects = append(d.effects, effects...)
	if before.Phase != next.Phase || before.Reason != next.Reason {
		b.Log.Info("decided", slog.String("bundle", next.Bundle), slog.String("phase", string(next.Phase)),
			slog.String("reason", next.Reason), slog.Int("attempt", next.Attempt), slog.Int64("job", int64(next.Job.ID)))
	}
}

// same says whether two rows are saved as the same document.
func same(a, b plan.Row) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// batch sends staged rows to Slurm, as many as each queue has room for, and
// decides them.
func (b *Bridge) batch(d *decisions, now time.Time) {
	staged := map[string][]plan.Row{}
	inFlight := map[string]int{}
	for _, r := range b.rows {
		if r.WaitsForRoom(now) {
			staged[r.Queue] = append(staged[r.Queue], r)
		} else if r.InFlight() {
			inFlight[r.Queue]++
		}
	}
	for name, rows := range staged {
		health := plan.Health{Budget: b.pacer.budget(now)}
		room := b.Policy.Room(b.Policy.Queues[name], inFlight[name], health)
		chosen := b.Policy.Batch(now, rows, room)
		b.pacer.spend(len(chosen))
		for _, r := range chosen {
			b.decide(d, now, r, plan.News{})
		}
	}
}

// save writes the rows that changed, and shows all that were decided to the
// pumps.
func (b *Bridge) save(ctx context.Context, d *decisions) error {
	changed := make([]plan.Row, 0, len(d.changed))
	for bundle := range d.changed {
		changed = append(changed, d.rows[bundle])
	}
	if len(changed) > 0 {
		if err := b.Ledger.Save(ctx, changed); err != nil {
			return fmt.Errorf("save decisions: %w", err)
		}
	}
	for _, r := range changed {
		d.rows[r.Bundle] = r // with its new version
	}
	for bundle, r := range d.rows {
		b.rows[bundle] = r
		b.effects.outlived(r)
		b.publish(r)
	}
	for i := range d.effects {
		d.effects[i].Row = d.rows[d.effects[i].Row.Bundle]
	}
	return nil
}

// wait is how long it is until the next row is due, or a staged one has room.
func (b *Bridge) wait(now time.Time) time.Duration {
	next := idle
	for _, r := range b.rows {
		if !r.Due.IsZero() {
			next = min(next, r.Due.Sub(now))
		}
		if r.WaitsForRoom(now) && b.pacer.empty() { // room in Slurm comes with news
			next = min(next, b.pacer.refill())
		}
	}
	return max(next, 0)
}

// view is what the pumps know of the rows. Step writes it.
type view struct {
	mu   sync.RWMutex
	rows map[string]plan.Row
}

// publish shows a row to the pumps.
func (b *Bridge) publish(r plan.Row) {
	b.view.mu.Lock()
	if b.view.rows == nil {
		b.view.rows = map[string]plan.Row{}
	}
	b.view.rows[r.Bundle] = r
	b.view.mu.Unlock()
	if r.Reported() {
		b.reports.set(r.Queue, r.Report(b.identity(r.Queue)))
	} else {
		b.reports.drop(r.Queue, r.Bundle)
	}
}

// identity is the worker identity of a queue.
func (b *Bridge) identity(queue string) string { return b.Name + "-" + queue }

// row returns a row as the pumps may see it.
func (v *view) row(bundle string) (plan.Row, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	r, ok := v.rows[bundle]
	return r, ok
}

// where returns the rows that a condition holds for.
func (v *view) where(holds func(plan.Row) bool) []plan.Row {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var out []plan.Row
	for _, r := range v.rows {
		if holds(r) {
			out = append(out, r)
		}
	}
	return out
}

// any says whether a condition holds for some row.
func (v *view) any(holds func(plan.Row) bool) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, r := range v.rows {
		if holds(r) {
			return true
		}
	}
	return false
}

func (v *view) remove(bundle string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.rows, bundle)
}

// started is the body with which a bundle is claimed.
func (b *Bridge) started(now time.Time) codalab.StartBundle {
	return codalab.StartBundle{Hostname: b.Hostname, StartTime: now.Unix()}
}
