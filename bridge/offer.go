package bridge

import (
	"context"
	"errors"
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

// firstSurveyWithin bounds the survey before the first check-in. A Slurm that does not
// answer must not keep the bridge from reporting its runs.
const firstSurveyWithin = 5 * time.Second

// surveying asks Slurm now and then what its nodes have.
func (b *Bridge) surveying(ctx context.Context) error {
	return b.every(ctx, surveyEvery, func(time.Time) { b.survey(ctx) })
}

// firstSurvey asks Slurm before the first check-in, so that an offer is as a rule
// what the nodes have.
func (b *Bridge) firstSurvey(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstSurveyWithin)
	defer cancel()
	b.survey(ctx)
}

func (b *Bridge) survey(ctx context.Context) {
	if err := b.Survey(ctx); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		b.Log.WarnContext(ctx, "cannot see what the nodes have", errorAttr(err))
	}
}

// Survey asks Slurm what its nodes have, for what the check-ins offer.
func (b *Bridge) Survey(ctx context.Context) error {
	partitions, err := b.Scheduler.Partitions(ctx)
	if err != nil {
		return fmt.Errorf("survey Slurm: %w", err)
	}
	nodes := make(map[string]codalab.Resources, len(b.Policy.Queues))
	for name, q := range b.Policy.Queues {
		nodes[name] = nodesOf(q, partitions)
	}
	b.view.mu.Lock()
	b.view.nodes = nodes
	b.view.mu.Unlock()
	return nil
}

// nodesOf is what the nodes of a queue's partitions have together; boundless where
// that is not known.
func nodesOf(q plan.Queue, partitions []sbatch.Partition) codalab.Resources {
	var all codalab.Resources
	named := strings.Split(q.Partition, ",")
	for _, p := range partitions {
		if q.Partition == "" && p.Default || slices.Contains(named, p.Name) {
			gpus := p.All.GPUs
			if q.GPUType != "" {
				gpus = p.All.GPUTypes[q.GPUType]
			}
			all.CPUs, all.GPUs, all.Memory = all.CPUs+p.All.CPUs, all.GPUs+gpus, all.Memory+p.All.Memory
			if p.Most.Memory < leastMemory { // slurm.conf(5): RealMemory is 1 MiB where nobody has set it
				all.Memory = boundlessBytes
			}
		}
	}
	if all.CPUs == 0 { // no such partition
		return boundless()
	}
	all.Memory = min(all.Memory, boundlessBytes)
	return all
}

// leastMemory is below what any node of today has.
const leastMemory = 256 << 20

func boundless() codalab.Resources {
	return codalab.Resources{CPUs: boundlessCPUs, GPUs: boundlessGPUs, Memory: boundlessBytes}
}

// offer is what a queue's identity offers: what its nodes have together, and what
// the runs in its hands ask for, which the server subtracts
// (codalab/server/bundle_manager.py: _deduct_worker_resources). A request that is
// larger than that stays staged, and the server says why. One that no single node
// can take is refused by Slurm, in words. With one node in place of all, a pass of
// the server's manager could hand out no more runs than fit on one node.
func (v *view) offer(queue string) codalab.Resources {
	v.mu.RLock()
	defer v.mu.RUnlock()
	offer, known := v.nodes[queue]
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

// freeDisk is what of the shared disk may be used.
func (v *view) freeDisk() int64 {
	if free := v.free.Load(); free > 0 {
		return free
	}
	return boundlessBytes // nobody measures it
}
