package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// An identity offers this while the bridge does not know its nodes. It is more than any request,
// so the server gives the bridge every bundle, and the bridge can say why it refuses one.
const (
	boundlessCPUs  = 1_000_000
	boundlessGPUs  = 10_000
	boundlessBytes = 1_000_000_000_000_000
)

// surveyEvery is the pause between two surveys of the partitions, whose nodes change seldom.
const surveyEvery = 10 * time.Minute

// firstSurveyWithin bounds the survey before the first check-in. A Slurm that does not answer
// must not delay the reports.
const firstSurveyWithin = 5 * time.Second

// watchNodes surveys the nodes now and then.
func (b *Bridge) watchNodes(ctx context.Context) error {
	return b.every(ctx, surveyEvery, func(time.Time) { b.trySurvey(ctx) })
}

// firstSurvey surveys the nodes before the first check-in, which then offers them.
func (b *Bridge) firstSurvey(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstSurveyWithin)
	defer cancel()
	b.trySurvey(ctx)
}

// trySurvey surveys the nodes, and logs a failure.
func (b *Bridge) trySurvey(ctx context.Context) {
	if err := b.survey(ctx); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		b.Log.WarnContext(ctx, "cannot survey the nodes", errorAttr(err))
	}
}

// survey asks Slurm what its nodes have, for the offers of check-ins.
func (b *Bridge) survey(ctx context.Context) error {
	partitions, err := b.Scheduler.Partitions(ctx)
	if err != nil {
		return fmt.Errorf("survey the nodes: %w", err)
	}
	nodes := make(map[string]codalab.Resources, len(b.Policy.Queues))
	sizes := make(map[string]sbatch.NodeSizes, len(b.Policy.Queues))
	for name, q := range b.Policy.Queues {
		nodes[name], sizes[name] = nodesOf(q, partitions)
	}
	b.view.mu.Lock()
	b.view.nodes, b.view.sizes = nodes, sizes
	b.view.mu.Unlock()
	b.inbox.putSizes(sizes)
	return nil
}

// applySizes lets decisions know the sizes of the queues' nodes.
func (b *Bridge) applySizes(in *arrivals) {
	if in.sizes == nil {
		return
	}
	queues := maps.Clone(b.deciding.Queues)
	for name, q := range queues {
		q.Nodes = in.sizes[name]
		queues[name] = q
	}
	b.deciding.Queues = queues
	if b.TracePolicy != nil {
		b.TracePolicy(b.deciding)
	}
}

// nodesOf is the sum of the nodes of a queue's partitions, and their sizes. An unknown part counts as
// boundless.
func nodesOf(q plan.Queue, partitions []sbatch.Partition) (codalab.Resources, sbatch.NodeSizes) {
	var all codalab.Resources
	var sizes sbatch.NodeSizes
	named := strings.Split(q.Partition, ",")
	for _, p := range partitions {
		if q.Partition == "" && p.Default || slices.Contains(named, p.Name) {
			gpus := p.All.GPUs
			if q.GPUType != "" {
				gpus = p.All.GPUTypes[q.GPUType]
			}
			all.CPUs, all.GPUs, all.Memory = all.CPUs+p.All.CPUs, all.GPUs+gpus, all.Memory+p.All.Memory
			if p.Most.Memory < leastMemory {
				all.Memory = boundlessBytes
			}
			for _, size := range p.Sizes {
				if size.Memory < leastMemory { // slurm.conf(5): RealMemory is 1 MiB where it is not set
					size.Memory = boundlessBytes
				}
				sizes = sizes.With(size)
			}
		}
	}
	if all.CPUs == 0 { // no such partition
		return boundless(), nil
	}
	all.Memory = min(all.Memory, boundlessBytes)
	return all, sizes
}

// leastMemory is less than any real node has.
const leastMemory = 256 << 20

func boundless() codalab.Resources {
	return codalab.Resources{CPUs: boundlessCPUs, GPUs: boundlessGPUs, Memory: boundlessBytes}
}

// offer is what a queue's identity offers: all of its nodes, plus what its runs request, since
// the server subtracts that (codalab/server/bundle_manager.py: _deduct_worker_resources). If the
// identity offered one node only, the server's manager would hand out no more runs in one pass than fit
// on one node. CodaLab's own server leaves a larger request staged, and says why; cl-server knows the
// sizes of the nodes (offeredSizes), and gives the bridge a request that fits none, which the bridge refuses.
//
// A stand-alone worker whose jobs are processes of its host offers what that has (local): the server then
// gives it what its runs leave free.
func (v *view) offer(queue string, local bool) codalab.Resources {
	v.mu.RLock()
	defer v.mu.RUnlock()
	offer, known := v.nodes[queue]
	if !known {
		return boundless()
	}
	if local {
		return offer
	}
	requested := v.requested[queue]
	offer.CPUs += requested.CPUs
	offer.GPUs += requested.GPUs
	offer.Memory += requested.Memory
	return offer
}

// nodeSizes are the sizes of a queue's nodes; empty while they are not known.
func (v *view) nodeSizes(queue string) sbatch.NodeSizes {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.sizes[queue]
}

// offeredSizes are the sizes of a queue's nodes, as much of each as a bundle may request.
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

// freeDisk is how much of the shared disk may be used, in bytes.
func (v *view) freeDisk() int64 {
	if free := v.free.Load(); free > 0 {
		return free
	}
	return boundlessBytes // it has not been measured
}
