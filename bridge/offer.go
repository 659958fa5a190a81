package bridge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// What an identity offers of a resource as long as the bridge does not know its
// nodes: more than any request asks for, so that the bridge, which can say why,
// refuses a request, and not the server.
const (
	boundlessCPUs  = 1_000_000
	boundlessGPUs  = 10_000
	boundlessBytes = 1_000_000_000_000_000
)

// surveyEvery is the pause between two looks at the partitions. Nodes change
// seldom.
const surveyEvery = 10 * time.Minute

// surveying asks Slurm now and then what its nodes have.
func (b *Bridge) surveying(ctx context.Context) error {
	return b.every(ctx, surveyEvery, func(time.Time) {
		if err := b.Survey(ctx); err != nil && ctx.Err() == nil {
			b.Log.WarnContext(ctx, "cannot see what the nodes have", errorAttr(err))
		}
	})
}

// Survey asks Slurm what its nodes have, for what the check-ins offer.
func (b *Bridge) Survey(ctx context.Context) error {
	partitions, err := b.Scheduler.Partitions(ctx)
	if err != nil {
		return fmt.Errorf("survey Slurm: %w", err)
	}
	largest := make(map[string]codalab.Resources, len(b.Policy.Queues))
	for name, q := range b.Policy.Queues {
		largest[name] = largestRun(q, partitions)
	}
	b.view.mu.Lock()
	b.view.largest = largest
	b.view.mu.Unlock()
	return nil
}

// largestRun is, of each resource, the most that a run on one node of a queue's
// partitions can have; boundless where that is not known.
func largestRun(q plan.Queue, partitions []sbatch.Partition) codalab.Resources {
	var most sbatch.NodeResources
	named := strings.Split(q.Partition, ",")
	for _, p := range partitions {
		if q.Partition == "" && p.Default || slices.Contains(named, p.Name) {
			most.CPUs, most.Memory = max(most.CPUs, p.Most.CPUs), max(most.Memory, p.Most.Memory)
			gpus := p.Most.GPUs
			if q.GPUType != "" {
				gpus = p.Most.GPUTypes[q.GPUType]
			}
			most.GPUs = max(most.GPUs, gpus)
		}
	}
	if most.CPUs == 0 { // no such partition
		return boundless()
	}
	run := codalab.Resources{CPUs: most.CPUs, GPUs: most.GPUs, Memory: most.Memory - q.MemoryOverhead}
	if run.Memory < leastMemory { // slurm.conf(5): RealMemory is 1 MiB where nobody has set it
		run.Memory = boundlessBytes
	}
	return run
}

// leastMemory is below what any node of today has.
const leastMemory = 256 << 20

func boundless() codalab.Resources {
	return codalab.Resources{CPUs: boundlessCPUs, GPUs: boundlessGPUs, Memory: boundlessBytes}
}

// offer is what a queue's identity offers: what one node can give a run, and what
// the runs in its hands ask for, which the server subtracts
// (codalab/server/bundle_manager.py: _deduct_worker_resources). A larger request
// stays staged, and the server says why.
func (v *view) offer(queue string) codalab.Resources {
	v.mu.RLock()
	defer v.mu.RUnlock()
	offer, known := v.largest[queue]
	if !known {
		return boundless()
	}
	for _, row := range v.rows {
		if row.Queue == queue && row.Phase != plan.Done {
			offer.CPUs += row.Resources.CPUs
			offer.GPUs += row.Resources.GPUs
			offer.Memory += row.Resources.Memory
		}
	}
	return offer
}
