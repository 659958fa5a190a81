package bridge

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// rules are the policy by which rows are decided: the configured one, with Slurm's settings and the sizes of
// the nodes. Only Step uses them.
type rules struct {
	plan.Policy

	settings *sbatch.Settings // nil while they are not known
	adapt    func(p *plan.Policy, s sbatch.Settings)
	trace    func(plan.Policy)
	log      *slog.Logger
}

// follow lets decisions and the pace follow Slurm's settings.
func (r *rules) follow(ctx context.Context, now time.Time, s *sbatch.Settings, p *pace) {
	if s == nil || r.settings != nil && *r.settings == *s {
		return
	}
	r.settings, r.MaxArraySize = s, s.MaxArraySize
	if r.adapt != nil {
		r.adapt(&r.Policy, *s)
	}
	r.changed()
	p.follow(now, s.RateLimit)
	r.log.InfoContext(ctx, "Slurm's settings", slog.String("cluster", s.Cluster), slog.Bool("accounting", s.Accounting),
		slog.Duration("min_job_age", s.MinJobAge), slog.Float64("requests_per_second", s.RateLimit.PerSecond))
}

// followSizes lets decisions know the sizes of the queues' nodes; nil for no news.
func (r *rules) followSizes(sizes map[string]sbatch.NodeSizes) {
	if sizes == nil {
		return
	}
	queues := maps.Clone(r.Queues)
	for name, q := range queues {
		q.Nodes = sizes[name]
		queues[name] = q
	}
	r.Queues = queues
	r.changed()
}

// followCeilings lets sentences name the limits that bound requests.
func (r *rules) followCeilings(l plan.Limits) {
	queues, same := maps.Clone(r.Queues), true
	for name, q := range queues {
		before := q.LimitedBy
		q.LimitedBy = ""
		if ceiling, ok := l.Ceiling(r.JobKinds(name)); ok {
			q.LimitedBy = ceiling.Words()
		}
		queues[name], same = q, same && q.LimitedBy == before
	}
	if same {
		return
	}
	r.Queues = queues
	r.changed()
}

// replace puts another configured policy in the place of the present one. What Slurm told stays.
func (r *rules) replace(p plan.Policy) {
	p.Queues = maps.Clone(p.Queues)
	for name, q := range p.Queues {
		q.Nodes, q.LimitedBy = r.Queues[name].Nodes, r.Queues[name].LimitedBy
		p.Queues[name] = q
	}
	p.MaxArraySize = r.MaxArraySize
	r.Policy = p
	if r.settings != nil && r.adapt != nil {
		r.adapt(&r.Policy, *r.settings)
	}
	r.changed()
}

func (r *rules) changed() {
	if r.trace != nil {
		r.trace(r.Policy)
	}
}
