package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// size returns the resources that a job for these resources requests of its node.
func (q Queue) size(res codalab.Resources) sbatch.NodeResources {
	size := sbatch.NodeResources{CPUs: max(res.CPUs, 1), GPUs: res.GPUs}
	if res.Memory > 0 {
		size.Memory = res.Memory + q.MemoryOverhead
	}
	if q.GPUType != "" && res.GPUs > 0 {
		size.GPUTypes = map[string]int64{q.GPUType: res.GPUs}
	}
	return size
}

// Fits reports whether a request fits a node of the queue. It is true while the nodes are not known. Slurm
// makes the final decision: it may hide nodes that are powered down (slurm.conf(5): PrivateData, cloud).
func (q Queue) Fits(res codalab.Resources) bool {
	return len(q.Nodes) == 0 || q.Nodes.Fit(q.size(res))
}

// tooLarge returns sentences if no node of the row's queue is large enough for its request: the nearest
// request that fits, and the other queues with a large enough node. It is empty if a node is large enough.
func (d *decision) tooLarge() string {
	if d.queue.Fits(d.row.Resources) {
		return ""
	}
	says := "No node of the queue is that large"
	if d.queue.LimitedBy != "" {
		says = "No job of the queue may be that large (" + d.queue.LimitedBy + ")"
	}
	if nearest := d.queue.nearest(d.row.Resources); nearest != "" {
		says += "; the nearest request that fits one is " + nearest
	}
	says += "."
	var others []string
	for _, name := range slices.Sorted(maps.Keys(d.policy.Queues)) {
		other := d.policy.Queues[name]
		if other.Group == d.queue.Group && len(other.Nodes) > 0 && other.refusal(d.row) == "" && other.Fits(d.row.Resources) {
			others = append(others, "--request-queue "+other.Tag)
		}
	}
	if len(others) > 0 {
		says += " Queues with nodes that are large enough: " + strings.Join(others, ", ") + "."
	}
	return says
}

// withSize adds tooLarge to a sentence.
func (d *decision) withSize(sentence string) string {
	if size := d.tooLarge(); size != "" {
		return sentence + " " + size
	}
	return sentence
}

// Requestable returns the largest requests that fit nodes of these sizes.
func (q Queue) Requestable(sizes sbatch.NodeSizes) []codalab.NodeSize {
	var requestable []codalab.NodeSize
	for _, size := range sizes {
		gpus := size.GPUs
		if q.GPUType != "" {
			gpus = size.GPUTypes[q.GPUType]
		}
		requestable = append(requestable, codalab.NodeSize{CPUs: size.CPUs, GPUs: gpus, MemoryBytes: size.Memory - q.MemoryOverhead})
	}
	return requestable
}

// nearest returns the request nearest to this one that fits a node, as options of cl run; empty if there is none.
func (q Queue) nearest(asked codalab.Resources) string {
	asked.Time = 0 // it is not the reason
	nearest, ok := codalab.NearestRequest(asked, q.Requestable(q.Nodes))
	if !ok {
		return ""
	}
	return nearest.Options()
}
