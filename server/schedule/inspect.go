package schedule

import (
	"context"
	"time"

	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// inspect finds the bundles of which nothing has been heard for too long. Run calls it at each pass.
func (s *Scheduler) inspect(ctx context.Context, now time.Time) {
	unclaimed, lost := s.config.Hub.Tick(now)
	s.changeAll(ctx, "stage unclaimed bundles again", unclaimed, plan.Bundle.Unclaim)
	s.changeAll(ctx, "take bundles offline", lost, func(b plan.Bundle) plan.Bundle { return b.GoOffline(now) })
	if now.Sub(s.oldFailed) < time.Hour {
		return
	}
	s.oldFailed = now
	stuck, err := s.config.Store.CreatedBefore(ctx, now.Add(-plan.StuckAfter), plan.Expiring()...)
	failures.Log(ctx, s.config.Log, "list old bundles", err)
	s.changeAll(ctx, "fail old bundles", stuck, func(b plan.Bundle) plan.Bundle { return b.Expire(now) })
}

// changeAll changes bundles by a transition, and tells Run.
func (s *Scheduler) changeAll(ctx context.Context, doing string, uuids []string, next func(plan.Bundle) plan.Bundle) {
	if len(uuids) == 0 {
		return
	}
	_, err := stored.Change(ctx, s.config.Store, s.config.Now(), uuids, next)
	failures.Log(ctx, s.config.Log, doing, err)
	s.config.Changes.Add(uuids...)
}
