package checkin

import (
	"context"
	"net/http"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// workersInfo returns the user's workers, those of the user's groups, and all workers to root. The token of a worker manager
// lists its own workers alone.
func (s *CheckIns) workersInfo(w http.ResponseWriter, r *http.Request, u store.User) error {
	groups, err := s.config.Store.Groups(r.Context(), u.ID)
	if err != nil {
		return err
	}
	workers := slices.DeleteFunc(s.config.Hub.Connected(s.config.Now()), func(one codalab.WorkerInfo) bool {
		if u.Bounded() {
			return one.UserID != u.ID || !u.MayBe(one.WorkerID)
		}
		inGroup := slices.ContainsFunc(groups, func(g store.Group) bool { return g.UUID == rest.Deref(one.GroupUUID) })
		return !u.Root() && one.UserID != u.ID && !inGroup
	})
	if err := s.hideRuns(r.Context(), u, workers); err != nil {
		return err
	}
	return rest.WriteDocument(w, workers, nil)
}

// hideRuns removes the runs that a user may not read from the lists of others' workers.
func (s *CheckIns) hideRuns(ctx context.Context, u store.User, workers []codalab.WorkerInfo) error {
	var uuids []string
	for _, one := range workers {
		if one.UserID != u.ID {
			uuids = append(uuids, one.RunUUIDs...)
		}
	}
	heads, err := s.config.Store.Heads(ctx, uuids)
	if err != nil {
		return err
	}
	have, err := s.config.Access.BundlePermissions(ctx, u, heads...)
	if err != nil {
		return err
	}
	for i := range workers {
		if workers[i].UserID == u.ID {
			continue
		}
		workers[i].RunUUIDs = slices.DeleteFunc(slices.Clone(workers[i].RunUUIDs), func(uuid string) bool { return have[uuid] < store.PermissionRead })
	}
	return nil
}
