package bridge

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// A queue's worker tells this capacity while the bridge does not know its nodes. It is more than any
// request, so the server gives the bridge every bundle, and the bridge can refuse one with a reason.
const (
	boundlessCPUs  = 1_000_000
	boundlessGPUs  = 10_000
	boundlessBytes = 1_000_000_000_000_000
)

func boundless() codalab.Resources {
	return codalab.Resources{CPUs: boundlessCPUs, GPUs: boundlessGPUs, Memory: boundlessBytes}
}

// capacity has the resources that the workers of the queues tell the server. It is safe for concurrent
// use.
type capacity struct {
	mu sync.RWMutex
	// nodes has the sum of each queue's nodes, and sizes has their sizes; nil while they are not known.
	nodes map[string]codalab.Resources
	sizes map[string]sbatch.NodeSizes
	// partitions has what the server shows of each queue's partitions. complete is set if Slurm is known to show all
	// nodes that it has.
	partitions map[string]partitionInfo
	complete   bool
	// requested has the sum of the requests of each queue's bundles.
	requested map[string]codalab.Resources
	// jobless has the runs of a stand-alone worker that have no job now (isJobless), by bundle.
	jobless map[string]*plan.Row
	// free is the part of the shared disk that may be used, in bytes; 0 before the first measurement.
	free int64
	// diskLow is the reason for which nothing new may be put onto the shared disk; empty for none.
	diskLow string
	// drained has the reason for each queue whose operators let it take no new bundles. It outlives init: it is
	// set before the first check-in.
	drained map[string]string
}

func (c *capacity) init() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requested, c.jobless, c.diskLow = map[string]codalab.Resources{}, map[string]*plan.Row{}, ""
}

// replace puts the request of a row in the place of an earlier one's. Each may be nil.
func (c *capacity) replace(old, r *plan.Row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.request(old, -1)
	c.request(r, 1)
	if old != nil {
		delete(c.jobless, old.Bundle)
	}
	if r != nil && isJobless(r) {
		c.jobless[r.Bundle] = r
	}
}

// isJobless reports whether a run of a stand-alone worker has no job, and its command does not begin or go on soon:
// image and inputs are being prepared, or results are being collected.
func isJobless(r *plan.Row) bool {
	preparing := r.NeedsDisk() && r.StopVerdict == nil
	return r.Standalone && (preparing || r.Phase == plan.Collecting)
}

const (
	// prepareWithin is the time for which a run that is being prepared keeps its part of the host. An image that
	// the worker has is ready sooner, so that the worker usually takes no more runs than it can begin.
	prepareWithin = 5 * time.Second
	// mostJobless bounds the runs without a job that leave their part of the host to others. So a worker does not
	// take all bundles of a server whose images never come.
	mostJobless = 64
)

// unused returns the sum of the requests of the runs of a queue that do not use their part of the host. The caller
// holds c.mu.
func (c *capacity) unused(queue string, now time.Time) codalab.Resources {
	var idle []*plan.Row
	for _, r := range c.jobless {
		if r.Queue == queue && (r.Phase == plan.Collecting || now.Sub(r.PhaseSince) >= prepareWithin) {
			idle = append(idle, r)
		}
	}
	slices.SortFunc(idle, func(a, b *plan.Row) int {
		return cmp.Or(a.PhaseSince.Compare(b.PhaseSince), strings.Compare(a.Bundle, b.Bundle))
	})
	var sum codalab.Resources
	for _, r := range idle[:min(len(idle), mostJobless)] {
		sum = plus(sum, r.Resources)
	}
	return sum
}

// plus returns a sum with the CPUs, GPUs and memory of r added.
func plus(sum, r codalab.Resources) codalab.Resources {
	sum.CPUs += r.CPUs
	sum.GPUs += r.GPUs
	sum.Memory += r.Memory
	return sum
}

// request adds a row's request to the sum of its queue, or takes it away.
func (c *capacity) request(r *plan.Row, sign int64) {
	if r == nil || r.Phase == plan.Done {
		return
	}
	sum := c.requested[r.Queue]
	sum.CPUs += sign * r.Resources.CPUs
	sum.GPUs += sign * r.Resources.GPUs
	sum.Memory += sign * r.Resources.Memory
	c.requested[r.Queue] = sum
}

// setNodes notes the nodes of each queue.
func (c *capacity) setNodes(nodes map[string]codalab.Resources, sizes map[string]sbatch.NodeSizes, partitions map[string]partitionInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes, c.sizes, c.partitions = nodes, sizes, partitions
}

// setComplete notes whether Slurm shows all nodes that it has.
func (c *capacity) setComplete(complete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete = complete
}

// setFree notes the part of the shared disk that may be used, at least 1.
func (c *capacity) setFree(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = bytes
}

// close notes a reason to ask for no bundles; empty for none.
func (c *capacity) close(diskLow string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diskLow = diskLow
}

// drain notes the reason for each queue that takes no new bundles, in the place of the earlier ones. It reports
// whether that changed anything.
func (c *capacity) drain(words map[string]string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := maps.Equal(c.drained, words)
	c.drained = maps.Clone(words)
	return !same
}

// drainedFor returns the reason for which the operators let a queue take no new bundles; empty for none.
func (c *capacity) drainedFor(queue string) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.drained[queue]
}

// closed returns the reason for which the bridge asks for no more bundles of a queue; empty for none. reportsLate
// is set if the last report of a live run of the queue is too old.
func (c *capacity) closed(queue string, reportsLate bool) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	switch {
	case c.drained[queue] != "":
		return c.drained[queue]
	case c.diskLow == "" && reportsLate:
		return "the server is slow to take the reports of the bundles that run there"
	}
	return c.diskLow
}

// of returns the capacity of a queue's worker: all of its nodes, plus the requests of its runs, since the server
// subtracts these (codalab/server/bundle_manager.py: _deduct_worker_resources). If the worker told one
// node only, the server's manager would hand out no more runs in one pass than fit on one node. CodaLab's own
// server leaves a larger request staged, with a reason; cl-server knows the sizes of the nodes (plan.Queue.Requestable),
// and gives the bridge a request that fits none, which the bridge refuses.
//
// A stand-alone worker whose jobs are processes of its host (local) tells that host: the server then gives it no more
// than its runs leave free. A run that is being prepared for long, or whose results are being collected, computes
// nothing, and the server subtracts its request all the same. So the worker adds that request (unused): a registry that
// does not answer must not keep others from the host. What the server subtracts stays at least what the worker adds, so
// it never gives more than the host has.
func (c *capacity) of(queue string, local bool, now time.Time) codalab.Resources {
	c.mu.RLock()
	defer c.mu.RUnlock()
	sum, known := c.nodes[queue]
	if !known {
		return boundless()
	}
	if local {
		return plus(sum, c.unused(queue, now))
	}
	return plus(sum, c.requested[queue])
}

// tooLarge reports whether a request is for more than the host of a stand-alone worker has. The server may send
// one if it read of the end of a run before it read the worker's capacity without that run.
func (c *capacity) tooLarge(queue string, asked codalab.Resources) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	host, known := c.nodes[queue]
	return known && (asked.CPUs > host.CPUs || asked.GPUs > host.GPUs || asked.Memory > host.Memory)
}

// nodeSizes returns the sizes of a queue's nodes; empty while they are not known.
func (c *capacity) nodeSizes(queue string) sbatch.NodeSizes {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.sizes[queue]
}

// freeDisk returns the part of the shared disk that may be used, in bytes.
func (c *capacity) freeDisk() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.free > 0 {
		return c.free
	}
	return boundlessBytes // it has not been measured
}
