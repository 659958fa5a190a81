package checkin

import (
	"context"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// capResources reduces the disk and time of a run that requested none to what is left of its owner's
// quotas (_compute_request_disk, _compute_request_time).
func (s *CheckIns) capResources(ctx context.Context, r *codalab.Resources, b store.Bundle) error {
	if !s.config.Site.Caps(b.Metadata) {
		return nil
	}
	owner, err := s.config.Store.User(ctx, b.OwnerID)
	if err != nil {
		return err
	}
	*r = s.config.Site.Cap(*r, b.Metadata, stored.Quota(owner))
	return nil
}

// enforceQuotas has workers kill those of these runs whose owners have used up a quota
// (codalab/rest/workers.py: checkin).
func (s *CheckIns) enforceQuotas(ctx context.Context, runs map[string]store.Bundle) error {
	ids := map[string]bool{}
	for _, b := range runs {
		if b.State.OnWorker() && b.KillMessage == "" {
			ids[b.OwnerID] = true
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var list []string
	for id := range ids {
		list = append(list, id)
	}
	owners, err := s.config.Store.UsersByID(ctx, list)
	if err != nil {
		return err
	}
	var over []string
	for uuid, b := range runs {
		if owner, ok := owners[b.OwnerID]; ok && ids[b.OwnerID] && stored.Quota(owner).KillMessage() != "" {
			over = append(over, uuid)
		}
	}
	if len(over) == 0 {
		return nil
	}
	_, err = stored.Change(ctx, s.config.Store, over, func(b plan.Bundle) plan.Bundle { return b.KillOverQuota(stored.Quota(owners[b.OwnerID])) })
	s.config.Changed(over...)
	return err
}
