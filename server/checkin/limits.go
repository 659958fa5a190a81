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
	var ids []string
	for _, b := range runs {
		ids = append(ids, b.OwnerID)
	}
	owners, err := s.config.Store.UsersByID(ctx, ids)
	if err != nil {
		return err
	}
	enforce := func(b plan.Bundle) plan.Bundle {
		if owner, ok := owners[b.OwnerID]; ok {
			return b.KillOverQuota(stored.Quota(owner))
		}
		return b
	}
	var over []string
	for uuid, b := range runs {
		if enforce(stored.Plan(b)).KillMessage != b.KillMessage {
			over = append(over, uuid)
		}
	}
	if len(over) == 0 {
		return nil
	}
	_, err = stored.Change(ctx, s.config.Store, s.config.Now(), over, enforce)
	s.config.Changed(over...)
	return err
}
