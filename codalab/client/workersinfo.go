package client

import (
	"context"
	"net/http"
)

// WorkerInfo is a worker that is connected to the server (codalab/rest/workers.py: workers_info).
type WorkerInfo struct {
	UserID    string  `json:"user_id"`
	WorkerID  string  `json:"worker_id"`
	GroupUUID *string `json:"group_uuid"`
	Tag       *string `json:"tag"`
	CPUs      int64   `json:"cpus"`
	CPUsInUse int64   `json:"cpus_in_use"`
	GPUs      int64   `json:"gpus"`
	GPUsInUse int64   `json:"gpus_in_use"`
	// MemoryBytes and FreeDiskBytes are in bytes; CheckInTime is in Unix seconds.
	MemoryBytes      int64    `json:"memory_bytes"`
	FreeDiskBytes    int64    `json:"free_disk_bytes"`
	CheckInTime      int64    `json:"checkin_time"`
	RunUUIDs         []string `json:"run_uuids"`
	SharedFileSystem bool     `json:"shared_file_system"`
	TagExclusive     bool     `json:"tag_exclusive"`
	ExitAfterNumRuns int64    `json:"exit_after_num_runs"`
	IsTerminating    bool     `json:"is_terminating"`
	Preemptible      bool     `json:"preemptible"`
}

// Workers returns the connected workers of the user and of the user's groups; all of them for root.
func (c *Client) Workers(ctx context.Context) ([]WorkerInfo, error) {
	var answer struct {
		Data []WorkerInfo `json:"data"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: "/workers/info", within: answerWithin}, &answer)
	return answer.Data, err
}
