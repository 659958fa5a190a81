package checkin

import (
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// shownWorkers returns the connected workers, by id.
func (s *CheckIns) shownWorkers() []codalab.WorkerInfo {
	workers := []codalab.WorkerInfo{}
	for _, c := range s.config.Hub.Connected(s.config.Now()) {
		one := codalab.WorkerInfo{
			UserID: c.Worker.User, WorkerID: c.Worker.ID, CPUs: c.CheckIn.CPUs, GPUs: c.CheckIn.GPUs,
			MemoryBytes: c.CheckIn.MemoryBytes, FreeDiskBytes: c.CheckIn.FreeDiskBytes, CheckInTime: c.Seen.Unix(), RunUUIDs: c.Runs,
			SharedFileSystem: c.CheckIn.SharedFileSystem, TagExclusive: c.CheckIn.TagExclusive, ExitAfterNumRuns: c.CheckIn.ExitAfterNumRuns,
			IsTerminating: c.CheckIn.IsTerminating, Preemptible: c.CheckIn.Preemptible, CPUsInUse: c.Used.CPUs, GPUsInUse: c.Used.GPUs,
		}
		if c.CheckIn.Tag != "" {
			one.Tag = &c.CheckIn.Tag
		}
		if c.Group != "" {
			one.GroupUUID = &c.Group
		}
		workers = append(workers, one)
	}
	slices.SortFunc(workers, func(a, b codalab.WorkerInfo) int {
		return strings.Compare(a.WorkerID+"\x00"+a.UserID, b.WorkerID+"\x00"+b.UserID)
	})
	return workers
}

// workersInfo returns the user's workers, those of the user's groups, and all workers to root.
func (s *CheckIns) workersInfo(w http.ResponseWriter, r *http.Request, u store.User) error {
	groups, err := s.config.Store.Groups(r.Context(), u.ID)
	if err != nil {
		return err
	}
	workers := slices.DeleteFunc(s.shownWorkers(), func(one codalab.WorkerInfo) bool {
		inGroup := slices.ContainsFunc(groups, func(g store.Group) bool { return g.UUID == rest.Deref(one.GroupUUID) })
		return !u.Root() && one.UserID != u.ID && !inGroup
	})
	return rest.WriteJSON(w, http.StatusOK, map[string]any{"data": workers, "meta": map[string]string{"version": codalab.Version}})
}
