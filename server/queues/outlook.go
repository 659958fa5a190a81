package queues

import (
	"context"

	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// Outlook returns a function for the outlook of new runs of a user on a worksheet, with the workers that are there now. A
// run inherits the permissions on the worksheet; it is empty for none.
func (s *Queues) Outlook(ctx context.Context, owner store.User, worksheet string) (func(store.Bundle) plan.Outlook, error) {
	v, err := s.viewOf(ctx, owner)
	if err != nil {
		return nil, err
	}
	for _, c := range v.capacities {
		if !c.Serves.Permitted[newRun] {
			continue
		}
		granted, err := s.config.Store.Granted(ctx, store.SharedWorksheet, c.Worker.User, []string{worksheet})
		if err != nil {
			return nil, err
		}
		c.Serves.Permitted[newRun] = granted[worksheet] == store.PermissionAll
	}
	return func(b store.Bundle) plan.Outlook {
		run := plan.NewWaiting(stored.Plan(b), s.config.Site.Resources(b.Metadata))
		run.UUID = newRun
		return s.config.Site.Outlook(run, v.capacities, stored.Quota(owner))
	}, nil
}
