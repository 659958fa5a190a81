package bridge

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// decider decides the rows. It reads the inbox, saves rows in the ledger, shows them on the board, and returns
// effects. Only Step uses it.
type decider struct {
	inForce   *inForce
	ledger    Ledger
	inbox     *inbox
	board     *board
	contact   *contact
	stray     *strayArrays
	life      *life
	condition *condition
	trace     func(plan.Decision)
	count     func(before, after *plan.Row, news *plan.News)
	log       *slog.Logger

	// queuesChanged holds a token when queues have come into force or gone.
	queuesChanged chan struct{}

	rules   *rules
	rows    *rows
	jobs    *shownJobs
	health  *health
	pace    *pace
	starter *starter

	limits     limits
	generation int64      // the last number given to a submission
	turns      plan.Turns // of submissions
	shared     submissions
	gathered   time.Time // the time at which rows that wait for others of their lane go without them; zero for none
	rested     bool      // the rows that were done when Slurm was first seen rest
	diskLow    *string   // plan.LowWater.Lack; nil while it is not known
	decided    int       // the rows that the last step decided
}

func newDecider(c *Config, f *inForce, in *inbox, shown *board, reach *contact, stray *strayArrays, l *life, state *condition) decider {
	d := decider{
		inForce: f, queuesChanged: make(chan struct{}, 1), ledger: c.Ledger, inbox: in, board: shown, contact: reach, stray: stray, life: l, condition: state, trace: c.Trace, count: c.Count, log: c.Log,
		rules: &rules{Policy: c.Policy, adapt: c.Adapt, trace: c.TracePolicy, log: c.Log},
		rows:  newRows(), jobs: &shownJobs{}, health: newHealth(c.Policy.Queues), pace: newPace(c.Pace, c.ObserveEvery), turns: plan.Turns{}, shared: submissions{},
	}
	d.starter = &starter{rows: d.rows, rules: d.rules, jobs: d.jobs, pace: d.pace, contact: reach}
	return d
}

// open reads the ledger, and gives each row its first news.
func (d *decider) open(ctx context.Context) error {
	saved, err := d.ledger.Outline(ctx)
	if err != nil {
		return err
	}
	if d.generation, err = d.ledger.Generation(ctx); err != nil {
		return err
	}
	d.contact.generation.Store(d.generation)
	d.board.init()
	for bundle, queue := range saved.Done {
		d.rows.putAsleep(bundle)
		d.board.view.asleep(bundle, queue)
	}
	for _, r := range saved.Rows {
		r.UsageUnread = r.Begun != nil && r.Exit == nil
		d.rows.put(&r)
		if r.Phase == plan.Claiming {
			d.life.claiming.Add(1)
		}
		d.inbox.put(r.Bundle, func(n *plan.News) { n.Restarted = true })
		d.board.resume(&r)
	}
	if err := d.openShared(ctx); err != nil {
		return err
	}
	d.log.InfoContext(ctx, "started", slog.Int("rows", len(saved.Rows)+len(saved.Done)), slog.String("bridge", d.rules.Bridge))
	return nil
}

// step decides the rows that have news or are due, and saves those that changed. It returns the effects to be
// started now, and the time after which the next step is due without news.
func (d *decider) step(ctx context.Context, now time.Time) ([]plan.Effect, time.Duration, error) {
	in := d.arrived()
	s := &step{now: now, places: map[string]int{}}
	if in.snapshot != nil {
		if err := d.noteSnapshot(ctx, s, *in.snapshot); err != nil {
			return nil, 0, err
		}
	}
	d.rules.follow(ctx, now, in.settings, d.pace)
	d.rules.followSizes(in.sizes)
	d.adopt(in.policy)
	d.followLimits(in.limits)
	d.followLow(ctx, &in)
	d.makeRows(ctx, now, &in)
	for _, n := range in.news {
		if err := d.decideIfThere(ctx, s, n.bundle, &n.News); err != nil {
			return nil, 0, err
		}
	}
	if err := d.decideDue(ctx, s); err != nil {
		return nil, 0, err
	}
	d.takeAnswers(s, in.answers)
	d.decideShared(ctx, s) // rows of a refused array may go again at once
	d.batch(ctx, s)
	d.decideShared(ctx, s)
	d.tellHeld(ctx, s.now)
	if err := d.save(ctx, s); err != nil {
		return nil, 0, err
	}
	d.decided = len(s.rows)
	d.board.reports.settle(in.news)
	effects, err := d.admit(ctx, s)
	d.restEnded(s)
	return effects, d.wait(now), err
}

// arrived returns the news since the last step. An effect of which it has the outcome is active no longer.
func (d *decider) arrived() arrivals {
	in := d.inbox.drain()
	for _, e := range in.ended {
		delete(d.starter.active.calls, e.Kind)
		for _, r := range e.Rows() {
			d.starter.active.end(plan.Effect{Kind: e.Kind, Row: r, Submission: e.Submission})
		}
	}
	return in
}

// step is one Step under way.
type step struct {
	now time.Time
	// rows are the decided rows, each once; changed is set for those that must be saved.
	rows    []*plan.Row
	changed []bool
	places  map[string]int // the indexes of bundles in rows
	effects []plan.Effect
	shared  map[plan.SubmissionName]plan.Submission // to be saved
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

// isLow reports whether nothing new may be put onto the shared disk.
func (d *decider) isLow() bool { return d.diskLow != nil && *d.diskLow != "" }

// followLow notes how full the shared disk is, and gives news to the rows without inputs.
func (d *decider) followLow(ctx context.Context, in *arrivals) {
	if in.diskLow == nil {
		return
	}
	before := d.isLow()
	d.diskLow = in.diskLow
	switch {
	case d.isLow() && !before:
		d.log.WarnContext(ctx, "no bundle is claimed and no inputs are staged", slog.String("reason", *d.diskLow))
	case before && !d.isLow():
		d.log.InfoContext(ctx, "bundles are claimed and inputs are staged again")
	}
	for _, bundle := range d.rows.needDisk(*d.diskLow) {
		in.newsOf(bundle) // decide fills it in
	}
}

// makeRows makes rows of offered bundles. An offer of a bundle that has a row is news for that
// row.
//
// While the shared disk is below its low water it makes none, and none of a drained queue: the server stages an
// unclaimed bundle again.
func (d *decider) makeRows(ctx context.Context, now time.Time, in *arrivals) {
	for _, o := range in.offers {
		bundle := o.message.Bundle.UUID
		n := in.newsOf(bundle)
		if d.rows.has(bundle) {
			n.Messages = append(n.Messages, o.message)
			continue
		}
		if _, ok := d.rules.Queues[o.queue]; !ok {
			continue // it has gone since the check-in
		}
		if d.isLow() {
			d.log.DebugContext(ctx, "an offered bundle is not claimed: the shared disk is below its low water", slog.String("bundle", bundle))
			continue
		}
		if why := cmp.Or(d.board.capacity.drainedFor(o.queue), d.life.refuses(now, o.message)); why != "" {
			d.log.InfoContext(ctx, "an offered bundle is not claimed", slog.String("bundle", bundle), slog.String("reason", why))
			continue
		}
		if asked := o.message.Resources; asked != nil && d.life.local() && d.board.capacity.tooLarge(o.queue, *asked) {
			d.log.InfoContext(ctx, "an offered bundle is not claimed: it asks for more than this host has", slog.String("bundle", bundle))
			continue
		}
		fresh := plan.NewRow(now, o.queue, o.message)
		fresh.Standalone = d.life.local()
		d.life.claiming.Add(1)
		d.rows.put(&fresh)
	}
}

// decide decides a row, which is not changed. It adds to the news.
func (d *decider) decide(ctx context.Context, s *step, r *plan.Row, n *plan.News) {
	before := d.rows.get(r.Bundle)
	if d.isLow() || r.DiskLow != "" {
		n.DiskLow = d.diskLow
	}
	d.health.examine(s.now, r, n)
	d.limits.examine(&d.rules.Policy, r, n)
	d.shared.tell(r, n)
	next, effects := d.rules.Next(s.now, *r, *n)
	after, changed := before, before.Version == 0
	if *before != next {
		after = &plan.Row{} // apart from next, so that a decision without a change allocates no row
		*after = next
		changed = changed || !before.Same(next)
		d.rows.put(after)
	}
	d.shared.noteJob(s, &d.rules.Policy, r, after, n)
	d.life.countClaim(r, after)
	d.health.learn(s.now, r, after)
	if d.trace != nil {
		d.trace(plan.Decision{Now: s.now, Row: *r, News: *n, Next: next, Effects: plan.KindsOf(effects)})
	}
	if d.count != nil {
		d.count(r, after, n)
	}
	s.add(after, changed)
	s.effects = append(s.effects, effects...)
	if (before.Phase != next.Phase || before.Reason != next.Reason) && d.log.Enabled(ctx, slog.LevelInfo) {
		d.log.InfoContext(ctx, "decided", slog.String("bundle", next.Bundle), slog.String("phase", string(next.Phase)),
			slog.String("reason", next.Reason), slog.Int("attempt", next.Attempt.Number), jobAttr(next.Job.ID))
	}
}

// batch submits staged rows, as many as each queue and the pace allow, and decides them. It
// submits none while Slurm does not answer, or has not been seen as a whole since the start: before that
// it is not known whether the ledger is up to date.
func (d *decider) batch(ctx context.Context, s *step) {
	if !d.jobs.observed || d.contact.unreachable.Load() {
		return
	}
	d.gathered = time.Time{}
	joining := d.join(ctx, s)
	left := budget(d.pace.submits, s.now) - d.rows.upcoming - count(s.effects, plan.Submit) - d.starter.heldOf(plan.Submit) - d.shared.upcoming()
	w := plan.Waiting{MaySubmit: map[string]int{}, Budget: left, Rooms: d.rooms()}
	for name := range d.rows.staged {
		h := d.health.of(name)
		if w.MaySubmit[name] = h.MaySubmit(s.now, d.rules.Queues[name].MaySubmit(d.rows.inFlight[name], w.Budget)); w.MaySubmit[name] > 0 {
			waiting := slices.DeleteFunc(d.rows.waiting(name, s.now), func(r *plan.Row) bool { return joining[r.Bundle] })
			w.Rows = append(w.Rows, d.gather(s.now, h.Candidates(waiting))...)
		}
	}
	var chosen []plan.Row
	chosen, d.turns = d.rules.Batch(s.now, w, d.turns, d.generation)
	d.tellFull(ctx, w.Rooms)
	for i := range chosen {
		r := &chosen[i]
		if r.Shared && (i == 0 || chosen[i-1].SubmissionName != r.SubmissionName) {
			d.shared.add(s.now, chosen[i:i+1])
		}
		d.generation = max(d.generation, r.Generation)
		d.health.of(r.Queue).Submitted(s.now)
		r.Exclude = d.health.nodes.Exclude(s.now, *r)
		d.decide(ctx, s, r, &plan.News{})
	}
}

// tellHeld tells the rows of a queue that wait for their submission when the reason for which the
// queue is held up has changed.
func (d *decider) tellHeld(ctx context.Context, now time.Time) {
	for _, queue := range d.health.changed(ctx, d.log) {
		for _, bundle := range slices.Sorted(maps.Keys(d.rows.staged[queue])) {
			d.inbox.put(bundle, nothing)
		}
	}
	d.condition.health(now, d.health)
}

// noteSnapshot searches a snapshot for orphan jobs. A ledger that is older than Slurm's jobs ends
// the bridge.
func (d *decider) noteSnapshot(ctx context.Context, s *step, snapshot sbatch.Snapshot) error {
	orphans, overdue, err := d.rules.OrphanJobs(s.now, snapshot, d.rows.get, d.rows.hasJob, d.generation, d.jobs.orphans)
	if err != nil {
		return fmt.Errorf("compare the ledger with Slurm: %w", err)
	}
	d.stray.note(snapshot.Jobs, orphans)
	found := map[string]*plan.Found{} // by bundle, the latest attempt's
	for _, j := range snapshot.Jobs {
		if _, orphan := orphans[j.ID]; !orphan {
			continue
		}
		for _, one := range d.stray.found(j) {
			r := d.rows.get(one.Stamp.Bundle)
			if f := found[one.Stamp.Bundle]; r != nil && r.MayTakeUp(one.Stamp) && (f == nil || f.Stamp.Attempt < one.Stamp.Attempt) {
				found[one.Stamp.Bundle] = &one
			}
		}
	}
	for _, bundle := range slices.Sorted(maps.Keys(found)) {
		delete(orphans, found[bundle].Job.ID)
		d.decide(ctx, s, d.rows.get(bundle), &plan.News{Found: found[bundle]})
	}
	for _, id := range slices.Sorted(maps.Keys(orphans)) {
		if s.now.Sub(orphans[id]) >= d.rules.OrphanGrace {
			d.log.WarnContext(ctx, "Slurm has an orphan job: a job of this bridge without a bundle",
				slog.String("job", id.String()), slog.Bool("cancelled", d.rules.CancelOrphans))
			orphans[id] = s.now // if it stays it is logged, and cancelled, again after as long
		}
	}
	for _, j := range overdue {
		if _, orphan := orphans[j.ID]; !orphan || d.stray.isUnread(j) {
			continue
		}
		s.effects = append(s.effects, plan.Effect{Kind: plan.Cancel, Row: &plan.Row{Attempt: plan.Attempt{Job: j}}})
	}
	d.jobs.note(snapshot, orphans)
	return nil
}

// save writes the rows that changed, and shows all decided rows on the board. If nothing
// changed, but effects wait, it saves an empty list: that fails if the ledger is no longer this
// bridge's.
func (d *decider) save(ctx context.Context, s *step) error {
	changed := make([]plan.Row, 0, s.changes())
	for i, r := range s.rows {
		if s.changed[i] {
			changed = append(changed, *r)
		}
	}
	shared := s.changedShared()
	if len(changed)+len(s.effects)+len(d.starter.held)+len(shared) > 0 {
		if err := d.ledger.Save(ctx, changed, shared...); err != nil {
			return fmt.Errorf("save decisions: %w", err)
		}
	}
	d.contact.generation.Store(d.generation)
	saved := 0
	for i, r := range s.rows {
		if s.changed[i] {
			r.Version = changed[saved].Version // this step has made the row, and nobody else has it yet
			saved++
		}
		d.starter.active.cancelOutdated(r)
		d.board.publish(s.now, r)
	}
	return nil
}

// admit returns the effects to be started. It does Forget itself, but not while another effect of the row
// runs: the outcome of that one could reach another bundle of the UUID. When it has ended the row is decided
// again.
func (d *decider) admit(ctx context.Context, s *step) ([]plan.Effect, error) {
	wanted := d.starter.stillWanted()
	for _, e := range s.effects {
		if i, ok := s.places[e.Row.Bundle]; ok {
			if outdated(e, s.rows[i]) {
				continue
			}
			e.Row = s.rows[i]
		}
		switch {
		case e.Kind == plan.Forget && d.starter.active.has(e.Row.Bundle):
		case e.Kind == plan.Forget:
			if err := d.ledger.Delete(ctx, *e.Row); err != nil {
				return nil, fmt.Errorf("forget bundle: %w", err)
			}
			d.rows.remove(e.Row.Bundle)
			d.board.remove(e.Row)
		case d.starter.active.begin(e):
			wanted = append(wanted, e)
		}
	}
	return d.starter.startNow(s.now, wanted), nil
}

// outdated reports whether a row that was decided again in the same step no longer wants an effect of the attempt that it had.
func outdated(e plan.Effect, now *plan.Row) bool {
	return e.Kind == plan.Prepare && (now.Phase != plan.Submitting || now.Attempt.Number != e.Row.Attempt.Number)
}

// idle is the longest time between two steps.
const idle = time.Minute

// wait returns how long it is until the next row is due, or a staged row may be submitted.
func (d *decider) wait(now time.Time) time.Duration {
	next := idle
	if due, ok := d.rows.nextDue(); ok {
		next = min(next, due.Sub(now))
	}
	if d.gathered.After(now) {
		next = min(next, d.gathered.Sub(now))
	}
	if due, ok := d.shared.nextDue(); ok {
		next = min(next, due.Sub(now))
	}
	if wait, ok := d.starter.wait(now, d.rows.anyWaiting()); ok {
		next = min(next, wait)
	}
	if probe, ok := d.health.nextProbe(d.rows.staged); ok && d.jobs.observed && probe.After(now) {
		next = min(next, probe.Sub(now))
	}
	return max(next, 0)
}
