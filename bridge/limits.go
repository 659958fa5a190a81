package bridge

import (
	"context"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// LimitSource asks Slurm for the limits of its QOS and associations on the bridge's jobs.
type LimitSource interface {
	// Limits asks for the limits of the bridge's user on a cluster, which costs the controller one request.
	Limits(ctx context.Context, cluster string) (sbatch.LimitTable, error)
	// Use asks for the present use of the user's limits and of those of these QOS, which costs it another one.
	Use(ctx context.Context, qos []string) (sbatch.LimitUse, error)
}

const (
	// tableEvery is the pause between two questions for the limits, which administrators change seldom, and useEvery that
	// between two for their use.
	tableEvery = 10 * time.Minute
	useEvery   = 5 * time.Minute
	// useAtLimitEvery is the latter while a bundle waits because a limit is reached: others' jobs may end. useSoonest is
	// it after Slurm has refused a job for a limit.
	useAtLimitEvery = time.Minute
	useSoonest      = 15 * time.Second
	// limitsTick is the pause between two looks at what is due.
	limitsTick = 5 * time.Second
)

// limitWatch asks for the limits, with the same few questions for any number of rows. It has a goroutine of its own, apart
// from that of slurmWatch: a database that does not answer must not delay a snapshot. Only that goroutine uses it, but for
// settings.
type limitWatch struct {
	source    LimitSource // nil for never
	inForce   *inForce
	view      *view
	contact   *contact
	wanted    *atomic.Bool // a job was refused for a limit
	inbox     *inbox
	condition *condition
	bound     func(map[string]plan.Ceiling)
	log       *slog.Logger

	settings         atomic.Pointer[sbatch.Settings] // nil while they are not known
	table            sbatch.LimitTable
	use              sbatch.LimitUse
	tableDue, useDue time.Time
	useAsked         time.Time
	useFailed        bool           // the last question for it
	own              plan.JobCounts // when the use was asked for
	limits           plan.Limits
	policy           *plan.Policy    // of limits
	unknown          string          // why there are none, or no use
	said             map[string]bool // the reasons that were logged
}

// run asks for the limits until ctx ends.
func (w *limitWatch) run(ctx context.Context, now func() time.Time) error {
	return every(ctx, limitsTick, now, func(now time.Time) { w.askIfDue(ctx, now) })
}

// askIfDue implements Bridge.AskLimits.
func (w *limitWatch) askIfDue(ctx context.Context, now time.Time) {
	settings := w.settings.Load()
	if w.source == nil || settings == nil || w.contact.unreachable.Load() {
		return
	}
	if settings.WhyNoLimits() != "" { // so none is unknown
		w.table, w.use, w.tableDue = sbatch.LimitTable{}, sbatch.LimitUse{}, time.Time{}
		w.noteUnknown(ctx, "")
		w.tellIf(w.limits.Any())
		return
	}
	asked := w.askTable(ctx, now, settings.Cluster)
	if w.useIsDue(now) && plan.LimitsOf(w.inForce.now(), w.table, sbatch.LimitUse{}).Any() {
		asked = w.askUse(ctx, now) || asked
	}
	if ctx.Err() != nil {
		return
	}
	w.tellIf(asked || w.policy != w.inForce.now())
	w.tellRows()
}

// noteUnknown notes why limits or their use are not known; empty if they are. Each reason is logged once.
func (w *limitWatch) noteUnknown(ctx context.Context, why string) {
	if why != "" && !w.said[why] {
		if w.said == nil {
			w.said = map[string]bool{}
		}
		w.said[why] = true
		w.log.InfoContext(ctx, "Slurm's limits of QOS and associations are not known as a whole; jobs wait in Slurm where they reach one", slog.String("reason", why))
	}
	w.unknown = why
	w.condition.limits(w.words(), why)
}

// askTable asks for the limits if that is due, and reports whether Slurm told them. Without an answer the earlier ones
// stay.
func (w *limitWatch) askTable(ctx context.Context, now time.Time, cluster string) bool {
	if now.Before(w.tableDue) {
		return false
	}
	w.tableDue, w.useDue = now.Add(tableEvery), now
	t, err := w.source.Limits(ctx, cluster)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		w.noteUnknown(ctx, err.Error())
		return false
	}
	w.table = t
	w.noteUnknown(ctx, "")
	return true
}

// useIsDue reports whether the use is to be asked for.
func (w *limitWatch) useIsDue(now time.Time) bool {
	since := now.Sub(w.useAsked)
	if w.useFailed { // most of all because the site hides it
		return !now.Before(w.useDue)
	}
	return !now.Before(w.useDue) || w.wanted.Load() && since >= useSoonest || since >= useAtLimitEvery && w.view.anyAtLimit()
}

// askUse asks for the use of the limits, and reports whether that is news. Without an answer no use is known, because an
// old one would mislead.
func (w *limitWatch) askUse(ctx context.Context, now time.Time) bool {
	w.wanted.Store(false)
	w.useAsked, w.useDue = now, now.Add(useEvery)
	w.own = w.view.countJobs(w.inForce.now().JobKind)
	use, err := w.source.Use(ctx, plan.LimitsOf(w.inForce.now(), w.table, sbatch.LimitUse{}).QOS())
	if ctx.Err() != nil {
		return false
	}
	w.use, w.useFailed = use, err != nil
	if err != nil {
		w.use, w.useDue = sbatch.LimitUse{}, now.Add(tableEvery)
		w.noteUnknown(ctx, err.Error())
	}
	return true
}

// tellIf tells everybody the limits if there is news.
func (w *limitWatch) tellIf(news bool) {
	if !news {
		return
	}
	w.policy = w.inForce.now()
	w.limits = plan.LimitsOf(w.policy, w.table, w.use)
	w.inbox.putLimits(learntLimits{w.limits, w.own})
	w.condition.limits(w.words(), w.unknown)
	ceilings := map[string]plan.Ceiling{}
	for name := range w.policy.Queues {
		if c, ok := w.limits.Ceiling(w.policy.JobKinds(name)); ok {
			ceilings[name] = c
		}
	}
	w.bound(ceilings)
}

// words describes the limits of each queue that has any.
func (w *limitWatch) words() map[string][]string {
	words := map[string][]string{}
	if w.policy == nil {
		return words
	}
	for name := range w.policy.Queues {
		if said := w.limits.Words(w.policy.JobKinds(name)); len(said) > 0 {
			words[name] = said
		}
	}
	return words
}

// tellRows tells the rows whose jobs wait for a limit which one it is.
func (w *limitWatch) tellRows() {
	if w.policy == nil {
		return
	}
	for _, r := range w.view.inFlight() {
		if !r.WaitsForLimit() {
			continue
		}
		limit := plan.ReachedLimit{Reason: r.Job.Reason, Sentence: w.limits.Reached(w.policy.JobKind(r), r.Job.Reason)}
		if limit != r.Limit {
			w.inbox.put(r.Bundle, func(n *plan.News) { n.Limit = &limit })
		}
	}
}

// learntLimits are limits, and the bridge's own jobs when their use was asked for.
type learntLimits struct {
	plan.Limits

	own plan.JobCounts
}

// limits holds rows back for which Slurm would take no job. Only Step uses it.
type limits struct {
	learntLimits

	wanted *atomic.Bool
	// full has a sentence for each kind of jobs of which Slurm takes no more, as the rows were told.
	full map[plan.JobKind]string
}

// examine adds to a row's news for which limit it waits to be submitted.
func (l *limits) examine(p *plan.Policy, r *plan.Row, n *plan.News) {
	l.examineAnswer(n.Submitted)
	if r.Phase != plan.Staging || len(l.full) == 0 && r.AtLimit == "" {
		return
	}
	if at := l.full[p.JobKind(r)]; at != r.AtLimit {
		n.AtLimit = &at
	}
}

// examineAnswer makes the use of the limits be asked for soon if Slurm refused a submission for one.
func (l *limits) examineAnswer(a *plan.SbatchAnswer) {
	if refusedForLimit(a) {
		l.wanted.Store(true)
	}
}

// followLimits lets decisions follow the limits; nil for no news.
func (d *decider) followLimits(l *learntLimits) {
	if l == nil {
		return
	}
	d.limits.learntLimits = *l
	d.rules.followCeilings(l.Limits)
}

// rooms returns how many jobs Slurm takes now; nil while no limit bounds their number.
func (d *decider) rooms() *plan.Rooms {
	if len(d.limits.Limits) == 0 || !d.rows.anyWaiting() {
		return nil
	}
	return d.limits.Rooms(d.rules.Policy, d.board.view.countJobs(d.rules.JobKind), d.limits.own)
}

// tellFull tells the rows that wait to be submitted of which kinds of jobs Slurm takes no more.
func (d *decider) tellFull(ctx context.Context, rooms *plan.Rooms) {
	full := rooms.Full(d.limits.full)
	if maps.Equal(full, d.limits.full) {
		return
	}
	for kind, why := range full {
		if d.limits.full[kind] == "" {
			d.log.InfoContext(ctx, "no more jobs are submitted until some end", slog.String("reason", why))
		}
	}
	d.limits.full = full
	for _, staged := range d.rows.staged {
		for bundle, e := range staged {
			if full[d.rules.JobKind(e.row)] != e.row.AtLimit {
				d.inbox.put(bundle, nothing)
			}
		}
	}
}

// refusedForLimit reports whether Slurm refused a submission because it has too many jobs already.
func refusedForLimit(s *plan.SbatchAnswer) bool {
	return s != nil && s.Refused && s.Retry && sbatch.SaysFull(s.Words)
}
