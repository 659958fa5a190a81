package plan

import (
	"fmt"
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

// nearest returns the request nearest to this one that fits a node, as options of cl run: of each resource
// the requested amount, or the amount that the node has. It is empty if there is none.
func (q Queue) nearest(asked codalab.Resources) string {
	var best codalab.Resources
	closest := 0.0
	for _, node := range q.Nodes {
		gpus := node.GPUs
		if q.GPUType != "" {
			gpus = node.GPUTypes[q.GPUType]
		}
		fits := codalab.Resources{CPUs: min(max(asked.CPUs, 1), node.CPUs), GPUs: min(asked.GPUs, gpus)}
		if asked.Memory > 0 {
			fits.Memory = min(asked.Memory, roundDown(node.Memory-q.MemoryOverhead))
		}
		share := shareOf(fits.CPUs, max(asked.CPUs, 1)) * shareOf(fits.GPUs, asked.GPUs) * shareOf(fits.Memory, asked.Memory)
		if share > closest {
			closest, best = share, fits
		}
	}
	if closest == 0 {
		return ""
	}
	options := []string{fmt.Sprintf("--request-cpus %d", best.CPUs)}
	if best.GPUs > 0 {
		options = append(options, fmt.Sprintf("--request-gpus %d", best.GPUs))
	}
	if best.Memory > 0 {
		options = append(options, "--request-memory "+codalab.FormatSize(best.Memory))
	}
	return strings.Join(options, " ")
}

// roundDown rounds bytes to whole gibibytes, or to whole mebibytes below one.
func roundDown(bytes int64) int64 {
	if bytes >= 1<<30 {
		return bytes >> 30 << 30
	}
	return max(bytes, 0) >> 20 << 20
}

// shareOf returns left as a share of asked; 1 if nothing was asked.
func shareOf(left, asked int64) float64 {
	if asked <= 0 {
		return 1
	}
	return float64(left) / float64(asked)
}
