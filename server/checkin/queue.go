package checkin

import (
	"maps"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

const (
	maxGPUTypes   = 20      // of one queue, in the order of their names
	maxQueueCount = 1 << 40 // of runs, nodes, GPUs and seconds
)

// boundQueue returns what the server keeps in memory of a queue's description, and shows to others. Wrong values count
// as unknown.
func boundQueue(q *codalab.QueueInfo) *codalab.QueueInfo {
	if q == nil {
		return nil
	}
	bounded := *q
	for _, n := range []*int64{
		&bounded.MaxSeconds, &bounded.DefaultSeconds, &bounded.PartitionSeconds,
		&bounded.Running, &bounded.Waiting, &bounded.Nodes, &bounded.IdleNodes,
	} {
		*n = boundCount(*n)
	}
	if q.WaitSeconds != nil {
		bounded.WaitSeconds = new(boundCount(*q.WaitSeconds))
	}
	for _, text := range []*string{&bounded.CPUImage, &bounded.GPUImage} {
		if len(*text) > rest.MaxWorkerText {
			*text = ""
		}
		*text = termtext.OneLine(*text)
	}
	bounded.GPUTypes = map[string]int64{}
	for _, name := range slices.Sorted(maps.Keys(q.GPUTypes)) {
		if len(bounded.GPUTypes) < maxGPUTypes && len(name) <= rest.MaxWorkerText {
			bounded.GPUTypes[termtext.OneLine(name)] = boundCount(q.GPUTypes[name])
		}
	}
	return &bounded
}

func boundCount(n int64) int64 { return min(max(n, 0), maxQueueCount) }
