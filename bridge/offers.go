package bridge

import (
	"sync"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// A queue offers this while the bridge does not know its nodes. It is more than any request, so the server
// gives the bridge every bundle, and the bridge can refuse one with a reason.
const (
	boundlessCPUs  = 1_000_000
	boundlessGPUs  = 10_000
	boundlessBytes = 1_000_000_000_000_000
)

func boundless() codalab.Resources {
	return codalab.Resources{CPUs: boundlessCPUs, GPUs: boundlessGPUs, Memory: boundlessBytes}
}

// offers are the resources that the queues offer to the server. It is safe for concurrent
// use.
type offers struct {
	mu sync.RWMutex
	// nodes has the sum of each queue's nodes, and sizes has their sizes; nil while they are not known.
	nodes map[string]codalab.Resources
	sizes map[string]sbatch.NodeSizes
	// requested has the sum of the requests of each queue's bundles.
	requested map[string]codalab.Resources
	// free is the part of the shared disk that may be used, in bytes; 0 before the first measurement.
	free int64
	// diskLow is the reason for which nothing new may be put onto the shared disk; empty for none.
	diskLow string
}

func (o *offers) init() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requested, o.diskLow = map[string]codalab.Resources{}, ""
}

// replace puts the request of a row in the place of an earlier one's. Each may be nil.
func (o *offers) replace(old, r *plan.Row) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.request(old, -1)
	o.request(r, 1)
}

// request adds a row's request to the sum of its queue, or takes it away.
func (o *offers) request(r *plan.Row, sign int64) {
	if r == nil || r.Phase == plan.Done {
		return
	}
	sum := o.requested[r.Queue]
	sum.CPUs += sign * r.Resources.CPUs
	sum.GPUs += sign * r.Resources.GPUs
	sum.Memory += sign * r.Resources.Memory
	o.requested[r.Queue] = sum
}

// setNodes notes the nodes of each queue.
func (o *offers) setNodes(nodes map[string]codalab.Resources, sizes map[string]sbatch.NodeSizes) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nodes, o.sizes = nodes, sizes
}

// setFree notes the part of the shared disk that may be used, at least 1.
func (o *offers) setFree(bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.free = bytes
}

// close notes a reason to ask for no bundles; empty for none.
func (o *offers) close(diskLow string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.diskLow = diskLow
}

// closed returns the reason for which the bridge asks for no more bundles of a queue; empty for none. reportsLate
// is set if the last report of a live run of the queue is too old.
func (o *offers) closed(reportsLate bool) string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.diskLow == "" && reportsLate {
		return "the server is slow to take the reports of the bundles that run there"
	}
	return o.diskLow
}

// of returns the offer of a queue: all of its nodes, plus the requests of its runs, since the server
// subtracts these (codalab/server/bundle_manager.py: _deduct_worker_resources). If the queue offered one
// node only, the server's manager would hand out no more runs in one pass than fit on one node. CodaLab's own
// server leaves a larger request staged, with a reason; cl-server knows the sizes of the nodes (offeredSizes),
// and gives the bridge a request that fits none, which the bridge refuses.
//
// A stand-alone worker whose jobs are processes of its host (local) offers that host alone: the server then
// gives it no more than its runs leave free.
func (o *offers) of(queue string, local bool) codalab.Resources {
	o.mu.RLock()
	defer o.mu.RUnlock()
	offer, known := o.nodes[queue]
	if !known {
		return boundless()
	}
	if local {
		return offer
	}
	requested := o.requested[queue]
	offer.CPUs += requested.CPUs
	offer.GPUs += requested.GPUs
	offer.Memory += requested.Memory
	return offer
}

// nodeSizes returns the sizes of a queue's nodes; empty while they are not known.
func (o *offers) nodeSizes(queue string) sbatch.NodeSizes {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.sizes[queue]
}

// freeDisk returns the part of the shared disk that may be used, in bytes.
func (o *offers) freeDisk() int64 {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.free > 0 {
		return o.free
	}
	return boundlessBytes // it has not been measured
}

// offeredSizes returns the sizes of a queue's nodes, as much of each as a bundle may request.
func offeredSizes(q plan.Queue, sizes sbatch.NodeSizes) []codalab.NodeSize {
	var offered []codalab.NodeSize
	for _, size := range sizes {
		gpus := size.GPUs
		if q.GPUType != "" {
			gpus = size.GPUTypes[q.GPUType]
		}
		offered = append(offered, codalab.NodeSize{CPUs: size.CPUs, GPUs: gpus, MemoryBytes: size.Memory - q.MemoryOverhead})
	}
	return offered
}
