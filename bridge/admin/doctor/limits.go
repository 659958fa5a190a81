package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// LearnLimits asks Slurm for the limits of its QOS and associations on the jobs of these queues and of the site's table, with
// their use. If only the use is hidden or unanswered, it returns the limits all the same, with the error.
func LearnLimits(ctx context.Context, slurm *sbatch.Client, s sbatch.Settings, user string, p plan.Policy) (plan.Limits, error) {
	if why := s.WhyNoLimits(); why != "" {
		return nil, errors.New(why)
	}
	table, err := slurm.Limits(ctx, s.Cluster, user)
	if err != nil {
		return nil, err
	}
	limits := plan.LimitsOf(&p, table, sbatch.LimitUse{})
	if !limits.Any() {
		return limits, nil
	}
	use, err := slurm.LimitUse(ctx, user, limits.QOS())
	return plan.LimitsOf(&p, table, use), err
}

// learnLimits asks Slurm for the limits of the queues, and says if it does not tell them.
func (e *Examination) learnLimits(ctx context.Context, site *Site, s sbatch.Settings) {
	p := plan.Policy{Queues: e.Config.Plan(), Map: e.Config.Mappings()}
	var err error
	site.Limits, err = LearnLimits(ctx, e.Slurm, s, site.User, p)
	e.add(Learnt(s, err))
}

// Learnt judges whether Slurm tells the limits of its QOS and associations.
func Learnt(s sbatch.Settings, err error) Check {
	const name = "slurm.limits"
	switch {
	case s.WhyNoLimits() != "":
		return ok(name, "QOS and associations limit no jobs: %s", s.WhyNoLimits())
	case err != nil:
		return warning(name, err.Error(), "the bridge goes on without it: jobs wait in Slurm where they reach a limit of a QOS or an association")
	}
	return ok(name, "Slurm tells the limits of QOS and associations, and their use")
}

// Limits judges the limits of QOS and associations on the jobs of a queue. of are the kinds of its jobs.
func Limits(q plan.Queue, of []plan.JobKind, limits plan.Limits) []Check {
	words := limits.Words(of)
	if len(words) == 0 {
		return nil
	}
	name := key(q, "limits")
	checks := []Check{ok(name, "%s", strings.Join(words, "; "))}
	for _, kind := range of {
		for _, l := range limits[kind] {
			if l.Full() && l.Kind.OnSubmissions() {
				checks[0] = warning(name, checks[0].Found, "Slurm takes no more of these jobs until some end: the bridge waits for that")
			}
		}
	}
	ceiling, bounded := limits.Ceiling(of)
	if asked := max(q.MaxTime, q.DefaultTime); bounded && ceiling.Time > 0 && asked > ceiling.Time {
		which := "max_time"
		if q.MaxTime == 0 {
			which = "default_time"
		}
		limit := codalab.SpellDuration(ceiling.Time)
		checks = append(checks, failed(key(q, which), fmt.Sprintf("%s is above the %s that a QOS or an association allows a job: such a job would never start", codalab.SpellDuration(asked), limit),
			fmt.Sprintf("write %s = %q", which, limit)))
	}
	return checks
}
