package checkin

import (
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
	return rest.WriteDocument(w, workers, nil)
}
