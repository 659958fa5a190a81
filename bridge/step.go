package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Open takes the ledger, reads it, and gives each row its first news. It is called once, before
// Step.
func (b *Bridge) Open(ctx context.Context) error {
	if err := b.Ledger.Take(ctx); err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	rows, err := b.Ledger.Outline(ctx)
	if err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	if b.generation, err = b.Ledger.Generation(ctx); err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	all := len(rows.Rows) + len(rows.Done)
	b.rows, b.turns = newRows(all), plan.Turns{}
	b.view.init()
	b.reports.init()
	b.inbox.init()
	b.submits, b.cancels = b.Pace.limiter(), b.Pace.limiter()
	b.places = newPlaces(b.AtOnce)
	b.deciding, b.followed, b.shared = b.Policy, nil, false
	b.health = newHealth(b.Policy.Queues)
	for bundle, queue := range rows.Done {
		b.rows.putAsleep(bundle)
		b.view.asleep(bundle, queue)
	}
	for _, r := range rows.Rows {
		b.rows.put(&r)
		if r.Phase == plan.Claiming {
			b.life.claiming.Add(1)
		}
		b.inbox.put(r.Bundle, func(n *plan.News) { n.Restarted = true })
		b.resume(&r)
	}
	b.Log.InfoContext(ctx, "started", slog.Int("rows", all), slog.String("bridge", b.Policy.Bridge))
	return nil
}

// Step decides the rows that have news or are due, and saves those that changed. It returns the
// effects to be started now, each with Do, and how long there is nothing to do without news. It
// waits for the ledger only, and is not safe for concurrent use. After an error no effect may
// be started: the ledger does not hold what the bridge believes.
func (b *Bridge) Step(ctx context.Context, now time.Time) ([]plan.Effect, time.Duration, error) {
	in := b.arrived()
	s := &step{now: now, places: map[string]int{}}
	if in.snapshot != nil {
		if err := b.orphanJobs(ctx, s, *in.snapshot); err != nil {
			return nil, 0, err
		}
	}
	b.applySettings(ctx, now, &in)
	b.applySizes(&in)
	b.applyLow(ctx, &in)
	b.makeRows(ctx, now, &in)
	for _, n := range in.news {
		if err := b.decideIfThere(ctx, s, n.bundle, n.News); err != nil {
			return nil, 0, err
		}
	}
	waking := mostWoken
	for _, bundle := range b.rows.dueBy(now) {
		if s.has(bundle) {
			continue
		}
		if b.rows.get(bundle) == nil {
			if waking--; waking < 0 { // the next step wakes it
				continue
			}
		}
		if err := b.decideIfThere(ctx, s, bundle, plan.News{}); err != nil {
			return nil, 0, err
		}
	}
	b.batch(ctx, s)
	b.tellHeld(ctx, s.now)
	if err := b.save(ctx, s); err != nil {
		return nil, 0, err
	}
	b.reports.settle(in.news)
	effects, err := b.admit(ctx, s)
	b.restEnded(s)
	return effects, b.wait(now), err
}

// step is one Step under way.
type step struct {
	now time.Time
	// rows are the decided rows, each once; changed says which of them must be saved.
	rows    []*plan.Row
	changed []bool
	places  map[string]int // the indexes of bundles in rows
	effects []plan.Effect
}

// add notes a decided row.
func (s *step) add(r *plan.Row, changed bool) {
	if i, ok := s.places[r.Bundle]; ok {
		s.rows[i], s.changed[i] = r, s.changed[i] || changed
		return
	}
	s.places[r.Bundle] = len(s.rows)
	s.rows, s.changed = append(s.rows, r), append(s.changed, changed)
}

// changes counts the rows that must be saved.
func (s *step) changes() (n int) {
	for _, changed := range s.changed {
		if changed {
			n++
		}
	}
	return n
}

// has reports whether a bundle's row is decided.
func (s *step) has(bundle string) bool {
	_, ok := s.places[bundle]
	return ok
}

// makeRows makes rows of offered bundles. An offer of a bundle that has a row is news for that
// row.
//
// While the shared disk is below its low water it makes none: the server stages an unclaimed
// bundle again.
func (b *Bridge) makeRows(ctx context.Context, now time.Time, in *arrivals) {
	for _, o := range in.offers {
		bundle := o.message.Bundle.UUID
		n := in.newsOf(bundle)
		if b.rows.has(bundle) {
			n.Messages = append(n.Messages, o.message)
			continue
		}
		if b.isLow() {
			b.Log.DebugContext(ctx, "an offered bundle is not claimed: the shared disk is below its low water", slog.String("bundle", bundle))
			continue
		}
		if why := b.refuses(now, o.message); why != "" {
			b.Log.InfoContext(ctx, "an offered bundle is not claimed", slog.String("bundle", bundle), slog.String("reason", why))
			continue
		}
		fresh := plan.NewRow(now, o.queue, o.message)
		fresh.Standalone = b.Standalone != nil && b.Standalone.Local
		b.life.claiming.Add(1)
		b.rows.put(&fresh)
	}
}

func (b *Bridge) decide(ctx context.Context, s *step, r plan.Row, n plan.News) {
	before := b.rows.get(r.Bundle)
	if b.isLow() || r.DiskLow != "" {
		n.DiskLow = b.low
	}
	b.examine(s.now, r, &n)
	next, effects := b.deciding.Next(s.now, r, n)
	b.countClaim(&r, &next)
	b.health.of(r.Queue).Learn(s.now, r, next, b.health.nodes)
	if b.Trace != nil {
		b.Trace(plan.Decision{Now: s.now, Row: r, News: n, Next: next, Effects: plan.KindsOf(effects)})
	}
	after := before
	if *before != next {
		after = &plan.Row{}
		*after = next
		b.rows.put(after)
	}
	s.add(after, before.Version == 0 || !before.Same(next))
	s.effects = append(s.effects, effects...)
	if (before.Phase != next.Phase || before.Reason != next.Reason) && b.Log.Enabled(ctx, slog.LevelInfo) {
		b.Log.InfoContext(ctx, "decided", slog.String("bundle", next.Bundle), slog.String("phase", string(next.Phase)),
			slog.String("reason", next.Reason), slog.Int("attempt", next.Attempt.Number), slog.Int64("job", int64(next.Job.ID)))
	}
}

// batch submits staged rows, as many as each queue and the pace have room for, and decides them. It
// submits none while Slurm does not answer, or has not been seen as a whole since the start: before that
// it is not known whether the ledger is up to date.
func (b *Bridge) batch(ctx context.Context, s *step) {
	if !b.observed || b.view.unreachable.Load() {
		return
	}
	w := plan.Waiting{Room: map[string]int{}, Budget: budget(b.submits, s.now) - b.rows.upcoming - count(s.effects, plan.Submit) - count(b.held, plan.Submit)}
	for name := range b.rows.staged {
		h := b.health.of(name)
		if w.Room[name] = h.Room(s.now, b.Policy.Queues[name].Room(b.rows.inFlight[name], w.Budget)); w.Room[name] > 0 {
			w.Rows = append(w.Rows, h.Candidates(b.rows.waiting(name, s.now))...)
		}
	}
	var chosen []plan.Row
	chosen, b.turns = b.Policy.Batch(s.now, w, b.turns, b.generation)
	b.generation += int64(len(chosen))
	for _, r := range chosen {
		b.health.of(r.Queue).Submitted(s.now)
		r.Exclude = b.health.nodes.Exclude(s.now, r)
		b.decide(ctx, s, r, plan.News{})
	}
}

// orphanJobs searches a snapshot for orphan jobs. A ledger that is older than Slurm's jobs ends
// the bridge.
func (b *Bridge) orphanJobs(ctx context.Context, s *step, snapshot sbatch.Snapshot) error {
	orphans, overdue, err := b.Policy.OrphanJobs(s.now, snapshot, b.rows.get, b.generation, b.found)
	if err != nil {
		return fmt.Errorf("compare the ledger with Slurm: %w", err)
	}
	found := map[string]*plan.Found{} // by bundle, the latest attempt's
	for _, j := range snapshot.Jobs {
		if _, orphan := orphans[j.ID]; !orphan {
			continue
		}
		stamp, _ := plan.StampOf(j)
		r := b.rows.get(stamp.Bundle)
		if f := found[stamp.Bundle]; r != nil && r.MayTakeUp(stamp) && (f == nil || f.Stamp.Attempt < stamp.Attempt) {
			found[stamp.Bundle] = &plan.Found{Stamp: stamp, Job: j}
		}
	}
	for _, bundle := range slices.Sorted(maps.Keys(found)) {
		delete(orphans, found[bundle].Job.ID)
		b.decide(ctx, s, *b.rows.get(bundle), plan.News{Found: found[bundle]})
	}
	for _, id := range slices.Sorted(maps.Keys(orphans)) {
		if s.now.Sub(orphans[id]) >= b.Policy.OrphanGrace {
			b.Log.WarnContext(ctx, "Slurm has an orphan job: a job of this bridge without a bundle",
				slog.String("job", id.String()), slog.Bool("cancelled", b.Policy.CancelOrphans))
			orphans[id] = s.now // if it stays it is logged, and cancelled, again after as long
		}
	}
	for _, j := range overdue {
		s.effects = append(s.effects, plan.Effect{Kind: plan.Cancel, Row: &plan.Row{Attempt: plan.Attempt{Job: j}}})
	}
	b.found, b.observed, b.asked = orphans, true, snapshot.Asked
	b.shown = make(map[sbatch.JobID]time.Time, len(snapshot.Jobs))
	for _, j := range snapshot.Jobs {
		b.shown[j.ID] = j.Submitted
	}
	return nil
}

// save writes the rows that changed, and shows all decided rows to the pumps. If nothing
// changed, but effects wait, it saves an empty list: that fails if the ledger is no longer this
// bridge's.
func (b *Bridge) save(ctx context.Context, s *step) error {
	changed := make([]plan.Row, 0, s.changes())
	for i, r := range s.rows {
		if s.changed[i] {
			changed = append(changed, *r)
		}
	}
	if len(changed)+len(s.effects)+len(b.held) > 0 {
		if err := b.Ledger.Save(ctx, changed); err != nil {
			return fmt.Errorf("save decisions: %w", err)
		}
	}
	saved := 0
	for i := range s.rows {
		if s.changed[i] {
			kept := changed[saved] // with its new version; apart from the others, which may go before it
			s.rows[i] = &kept
			saved++
			b.rows.put(s.rows[i])
		}
		b.publish(s.now, s.rows[i])
	}
	return nil
}

// idle is the longest time between two steps.
const idle = time.Minute

// wait is how long it is until the next row is due, or a staged row has room.
func (b *Bridge) wait(now time.Time) time.Duration {
	next := idle
	if due, ok := b.rows.nextDue(); ok {
		next = min(next, due.Sub(now))
	}
	if b.observed && budget(b.submits, now) < 1 && (count(b.held, plan.Submit) > 0 || b.rows.anyWaiting()) {
		next = min(next, refill(b.submits, now)) // other room in Slurm comes with news
	}
	if probe, ok := b.nextProbe(); ok && b.observed && probe.After(now) {
		next = min(next, probe.Sub(now))
	}
	if b.observed && budget(b.cancels, now) < 1 && count(b.held, plan.Cancel) > 0 {
		next = min(next, refill(b.cancels, now)) // a fresh snapshot, and a scancel's end, come with news
	}
	return max(next, 0)
}
