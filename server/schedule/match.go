package schedule

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/clientele"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// match assigns staged runs to workers, and notes in the others why they wait. If no worker
// has more room than at the last call, only new runs can find a worker, and match tries only
// those, unless all is set. Only Run calls it.
func (s *Scheduler) match(ctx context.Context, now time.Time, all bool) {
	s.config.Staged(float64(len(s.pending)))
	if len(s.pending) == 0 || len(s.fresh) == 0 && !all && !s.config.Hub.MoreRoom() {
		return
	}
	defer func() { s.config.Observe(s.config.Now().Sub(now).Seconds()) }()
	capacities, counts, more := s.config.Hub.TakeCapacities(now)
	candidates := s.fresh
	if more || all {
		candidates = s.pending
	}
	s.fresh = map[string]*plan.Waiting{}
	quotas, err := s.ownersQuotas(ctx, candidates)
	if err == nil {
		err = s.addRunning(ctx, quotas, candidates)
	}
	if err == nil {
		err = s.setBounds(ctx, candidates)
	}
	if err == nil {
		err = s.setClientele(ctx, capacities, candidates)
	}
	if err != nil {
		failures.Log(ctx, s.config.Log, "match bundles with workers", err)
		return
	}
	s.applyDecisions(ctx, now, plan.Match(s.config.Site, candidates, capacities, counts, quotas))
}

// applyDecisions writes decisions into the bundles.
func (s *Scheduler) applyDecisions(ctx context.Context, now time.Time, d plan.Decisions) {
	if len(d.Order) == 0 {
		return
	}
	changed, err := stored.Change(ctx, s.config.Store, now, d.Order, func(b plan.Bundle) plan.Bundle { return d.Apply(b, now) })
	failures.Log(ctx, s.config.Log, "match bundles with workers", err)
	var bundles []store.Bundle
	for _, uuid := range d.Order {
		if b, ok := changed[uuid]; ok {
			bundles = append(bundles, b)
		}
	}
	s.track(bundles...)
	if len(d.Failed) > 0 {
		s.config.Changes.Add(slices.Collect(maps.Keys(d.Failed))...) // their children fail too
	}
	if err == nil {
		s.fresh = map[string]*plan.Waiting{} // match has tried those that still wait
	}
}

// ownersQuotas returns the quotas of the owners of runs, by id.
func (s *Scheduler) ownersQuotas(ctx context.Context, runs map[string]*plan.Waiting) (map[string]plan.Quota, error) {
	ids := make([]string, 0, len(runs))
	for _, run := range runs {
		ids = append(ids, run.OwnerID)
	}
	users, err := s.config.Store.UsersByID(ctx, ids)
	quotas := make(map[string]plan.Quota, len(users))
	for id, u := range users {
		quotas[id] = stored.Quota(u)
	}
	return quotas, err
}

// addRunning adds to the quotas what running runs use, for the owners of runs that these quotas refuse: the reason
// tells it.
func (s *Scheduler) addRunning(ctx context.Context, quotas map[string]plan.Quota, runs map[string]*plan.Waiting) error {
	var refused []string
	for _, run := range runs {
		if quota, known := quotas[run.OwnerID]; known && s.config.Site.Refuses(run, quota) != "" {
			refused = append(refused, run.OwnerID)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	running, err := s.config.Store.RunningUse(ctx, refused)
	for id, use := range running {
		quota := quotas[id]
		quota.Running = stored.Running(use)
		quotas[id] = quota
	}
	return err
}

// setBounds fills in the MaxParallel of the runs of sweeps. It reads the sweeps' worksheets at each pass, because their
// owners may change the bounds.
func (s *Scheduler) setBounds(ctx context.Context, runs map[string]*plan.Waiting) error {
	sweeps := map[string]bool{}
	for _, run := range runs {
		if run.Sweep != "" {
			sweeps[run.Sweep] = true
		}
	}
	if len(sweeps) == 0 {
		return nil
	}
	sheets, err := s.config.Store.WorksheetsByUUID(ctx, slices.Collect(maps.Keys(sweeps)))
	for _, run := range runs {
		run.MaxParallel = codalab.MaxParallel(sheets[run.Sweep].Tags())
	}
	return err
}

// setClientele fills in the Serves of capacities, for these runs.
func (s *Scheduler) setClientele(ctx context.Context, capacities []plan.Capacity, runs map[string]*plan.Waiting) error {
	return clientele.Fill(ctx, s.config.Store, capacities, func(members map[string]bool) (uuids []string) {
		for uuid, run := range runs {
			if members == nil || members[run.OwnerID] {
				uuids = append(uuids, uuid)
			}
		}
		return uuids
	})
}
