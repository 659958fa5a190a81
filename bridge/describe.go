package bridge

import (
	"cmp"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// partitionInfo has what the server shows to users of the partitions of a queue.
type partitionInfo struct {
	nodes, idle int64
	// most is the longest time limit of the partitions; 0 if one has no bound.
	most     time.Duration
	gpuTypes map[string]int64
	// longest is the longest time limit that QOS and associations allow; 0 for no bound.
	longest time.Duration
}

// below returns the partitions below a ceiling.
func (i partitionInfo) below(c plan.Ceiling) partitionInfo {
	i.most, i.gpuTypes, i.longest = c.BoundTime(i.most), c.BoundTypes(i.gpuTypes), c.Time
	return i
}

// describePartitions describes the partitions of a queue. Those that are down or drained count with no nodes.
func describePartitions(q plan.Queue, partitions []sbatch.Partition) partitionInfo {
	var info partitionInfo
	var most sbatch.NodeResources
	bounded := true
	for _, p := range partitions {
		if !usesPartition(q, p) {
			continue
		}
		if p.Up() {
			info.nodes, info.idle = info.nodes+int64(p.Ready), info.idle+int64(p.Idle)
		}
		info.most, bounded = max(info.most, p.MaxTime), bounded && p.MaxTime > 0
		most = most.Max(p.Most)
	}
	if !bounded {
		info.most = 0
	}
	info.gpuTypes = most.GPUTypes
	if q.GPUType != "" {
		info.gpuTypes = map[string]int64{q.GPUType: most.GPUTypes[q.GPUType]}
	}
	return info
}

// describe describes a queue to the server, which shows that to the queue's users.
func (w *queueWorkers) describe(q plan.Queue, now time.Time) *codalab.QueueInfo {
	partitions, complete := w.board.capacity.describe(q.Name)
	running, waiting, expected, known := w.board.load.shown(q.Name, now)
	info := &codalab.QueueInfo{
		GPUTypes: partitions.gpuTypes, Nodes: partitions.nodes, IdleNodes: partitions.idle, Elastic: !complete,
		MaxSeconds: wholeSeconds(mostTime(q, partitions)), DefaultSeconds: wholeSeconds(cmp.Or(q.DefaultTime, q.MaxTime)),
		CPUImage: q.DefaultCPUImage, GPUImage: q.DefaultGPUImage, Running: running, Waiting: waiting,
	}
	if q.MaxTime == 0 {
		info.PartitionSeconds = wholeSeconds(partitions.most)
	}
	if known {
		info.WaitSeconds = new(wholeSeconds(expected))
	}
	return info
}

// mostTime returns the longest time that a run of a queue may request, of which the bridge is sure; 0 for no bound.
func mostTime(q plan.Queue, partitions partitionInfo) time.Duration {
	if q.MaxTime == 0 || partitions.longest == 0 {
		return q.MaxTime
	}
	return min(q.MaxTime, partitions.longest)
}

// describe returns what is known of a queue's partitions, and whether Slurm shows all nodes that it has.
func (c *capacity) describe(queue string) (partitionInfo, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.partitions[queue], c.complete
}

func wholeSeconds(d time.Duration) int64 { return int64(d / time.Second) }
