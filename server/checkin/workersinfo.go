package checkin

import (
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// shownWorker is a worker as clients see it (codalab/rest/workers.py: workers_info).
type shownWorker struct {
	UserID           string   `json:"user_id"`
	WorkerID         string   `json:"worker_id"`
	GroupUUID        *string  `json:"group_uuid"`
	Tag              *string  `json:"tag"`
	CPUs             int64    `json:"cpus"`
	GPUs             int64    `json:"gpus"`
	MemoryBytes      int64    `json:"memory_bytes"`
	FreeDiskBytes    int64    `json:"free_disk_bytes"`
	CheckInTime      int64    `json:"checkin_time"`
	SocketID         *int64   `json:"socket_id"`
	RunUUIDs         []string `json:"run_uuids"`
	SharedFileSystem bool     `json:"shared_file_system"`
	TagExclusive     bool     `json:"tag_exclusive"`
	ExitAfterNumRuns int64    `json:"exit_after_num_runs"`
	IsTerminating    bool     `json:"is_terminating"`
	Preemptible      bool     `json:"preemptible"`
	CPUsInUse        int64    `json:"cpus_in_use"`
	GPUsInUse        int64    `json:"gpus_in_use"`
}

// shownWorkers returns the connected workers, by id.
func (s *CheckIns) shownWorkers() []shownWorker {
	workers := []shownWorker{}
	for _, c := range s.config.Hub.Connected(s.config.Now()) {
		one := shownWorker{
			UserID: c.Worker.User, WorkerID: c.Worker.ID, CPUs: c.Info.CPUs, GPUs: c.Info.GPUs,
			MemoryBytes: c.Info.MemoryBytes, FreeDiskBytes: c.Info.FreeDiskBytes, CheckInTime: c.Seen.Unix(), RunUUIDs: c.Runs,
			SharedFileSystem: c.Info.SharedFileSystem, TagExclusive: c.Info.TagExclusive, ExitAfterNumRuns: c.Info.ExitAfterNumRuns,
			IsTerminating: c.Info.IsTerminating, Preemptible: c.Info.Preemptible, CPUsInUse: c.Used.CPUs, GPUsInUse: c.Used.GPUs,
		}
		if c.Info.Tag != "" {
			one.Tag = &c.Info.Tag
		}
		if c.Group != "" {
			one.GroupUUID = &c.Group
		}
		workers = append(workers, one)
	}
	slices.SortFunc(workers, func(a, b shownWorker) int {
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
	workers := slices.DeleteFunc(s.shownWorkers(), func(one shownWorker) bool {
		inGroup := slices.ContainsFunc(groups, func(g store.Group) bool { return g.UUID == rest.Deref(one.GroupUUID) })
		return !u.Root() && one.UserID != u.ID && !inGroup
	})
	return rest.WriteJSON(w, http.StatusOK, map[string]any{"data": workers, "meta": map[string]string{"version": codalab.Version}})
}
