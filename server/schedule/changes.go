package schedule

import (
	"context"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// processChanges acts on changed bundles, and on those that change as a result. It returns
// those for which that failed: the next pass tries again. Only Run calls it.
func (s *Scheduler) processChanges(ctx context.Context, uuids []string) (failed []string) {
	for len(uuids) > 0 && ctx.Err() == nil {
		next, err := s.processSome(ctx, uuids)
		switch {
		case err == nil:
		case len(uuids) > 1: // one of them must not hold the others up
			for _, uuid := range uuids {
				failed = append(failed, s.processChanges(ctx, []string{uuid})...)
			}
		default:
			failures.Log(ctx, s.config.Log, "act on a change of bundle "+uuids[0], err)
			failed = append(failed, uuids...)
		}
		uuids = next
	}
	return failed
}

// processSome acts on bundles' states, and returns the bundles that it changed.
func (s *Scheduler) processSome(ctx context.Context, uuids []string) (changed []string, err error) {
	uuids = slices.Compact(slices.Sorted(slices.Values(uuids)))
	found, err := s.config.Store.Bundles(ctx, uuids)
	if err != nil {
		return nil, err
	}
	var created, parents []string
	for _, uuid := range uuids {
		b, ok := found[uuid]
		if !ok {
			delete(s.pending, uuid)
			delete(s.fresh, uuid)
			s.config.Hub.Forget(uuid)
			s.config.Makers.Stop(uuid)
			parents = append(parents, uuid) // children miss it now
			continue
		}
		s.track(b)
		switch {
		case b.State == codalab.StateCreated:
			created = append(created, uuid)
		case b.Type == codalab.TypeMake && (b.State == codalab.StateStaged || b.State == codalab.StateMaking):
			again, err := s.config.Makers.Start(ctx, uuid)
			changed = append(changed, again...)
			if err != nil {
				return changed, err
			}
		case b.State.Final():
			s.config.Makers.Stop(uuid)
			if s.config.SharedDisk && !b.Assigned.IsZero() && b.Contents != b.LocationName() {
				s.config.Store.RemoveLater(b.LocationName())
			}
			parents = append(parents, uuid)
		}
	}
	children, err := s.config.Store.WaitingChildren(ctx, parents)
	if err != nil {
		return changed, err
	}
	waiting := slices.Sorted(slices.Values(append(created, children...)))
	staged, err := s.stage(ctx, slices.Compact(waiting))
	return append(changed, staged...), err
}

// track updates the hub and the waiting runs from bundles.
func (s *Scheduler) track(bundles ...store.Bundle) {
	all := make([]plan.Bundle, 0, len(bundles))
	for _, one := range bundles {
		b := stored.Plan(one)
		all = append(all, b)
		if b.State == codalab.StateStaged && b.Type == codalab.TypeRun {
			s.pending[b.UUID] = plan.NewWaiting(b, s.config.Site.Resources(b.Metadata))
			s.fresh[b.UUID] = s.pending[b.UUID]
		} else {
			delete(s.pending, b.UUID)
			delete(s.fresh, b.UUID)
		}
	}
	s.config.Hub.Track(all, s.config.Site.Resources)
}

// stage stages or fails created bundles, but for those that have to wait for their parents. It returns
// those that it changed.
func (s *Scheduler) stage(ctx context.Context, uuids []string) (changed []string, err error) {
	parents, err := s.config.Store.Parents(ctx, uuids)
	if err != nil {
		return nil, err
	}
	did := map[string]bool{}
	found, err := stored.Change(ctx, s.config.Store, s.config.Now(), uuids, func(b plan.Bundle) plan.Bundle {
		b, did[b.UUID] = b.Stage(stored.Parents(b, parents[b.UUID]))
		return b
	})
	for uuid := range found {
		if did[uuid] {
			changed = append(changed, uuid)
		}
	}
	return changed, err
}
