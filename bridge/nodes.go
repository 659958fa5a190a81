package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// surveyEvery is the pause between two surveys of the partitions. Their nodes change seldom, but the server shows users
// how many of them are idle. A survey is two requests to the controller.
const surveyEvery = 2 * time.Minute

// firstSurveyWithin bounds the survey before the first check-in. A Slurm that does not answer
// must not delay the reports.
const firstSurveyWithin = 5 * time.Second

// nodeWatch asks Slurm about the queues' nodes, for the capacity that check-ins tell and for decisions.
type nodeWatch struct {
	scheduler sbatch.Scheduler
	inForce   *inForce
	capacity  *capacity
	inbox     *inbox
	log       *slog.Logger

	mu       sync.Mutex
	surveyed survey                  // the last one
	ceilings map[string]plan.Ceiling // by queue; nil while none are known
}

// run surveys the nodes every surveyEvery until ctx ends.
func (w *nodeWatch) run(ctx context.Context, now func() time.Time) error {
	return every(ctx, surveyEvery, now, func(time.Time) { w.trySurvey(ctx) })
}

// first surveys the nodes before the first check-in, which then tells them.
func (w *nodeWatch) first(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstSurveyWithin)
	defer cancel()
	w.trySurvey(ctx)
}

// trySurvey surveys the nodes, and logs a failure.
func (w *nodeWatch) trySurvey(ctx context.Context) {
	if err := w.survey(ctx); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		w.log.WarnContext(ctx, "cannot survey the nodes", errorAttr(err))
	}
}

// survey asks Slurm about its nodes.
func (w *nodeWatch) survey(ctx context.Context) error {
	partitions, err := w.scheduler.Partitions(ctx)
	if err != nil {
		return fmt.Errorf("survey the nodes: %w", err)
	}
	queues := w.inForce.queues()
	nodes := make(map[string]codalab.Resources, len(queues))
	sizes := make(map[string]sbatch.NodeSizes, len(queues))
	shown := make(map[string]partitionInfo, len(queues))
	for name, q := range queues {
		nodes[name], sizes[name] = nodesOf(q, partitions)
		shown[name] = describePartitions(q, partitions)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.surveyed = survey{nodes, sizes, shown}
	w.show()
	return nil
}

// survey has the queues' nodes as Slurm shows them.
type survey struct {
	nodes map[string]codalab.Resources
	sizes map[string]sbatch.NodeSizes
	shown map[string]partitionInfo
}

// bound keeps requests below the ceilings of the queues, in place of earlier ones.
func (w *nodeWatch) bound(ceilings map[string]plan.Ceiling) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ceilings = ceilings
	if w.surveyed.sizes != nil {
		w.show()
	}
}

// show tells the nodes, bounded by the ceilings. The caller holds w.mu.
func (w *nodeWatch) show() {
	sizes, shown := maps.Clone(w.surveyed.sizes), maps.Clone(w.surveyed.shown)
	for queue, ceiling := range w.ceilings {
		if info, ok := shown[queue]; ok {
			sizes[queue], shown[queue] = ceiling.Bound(sizes[queue]), info.below(ceiling)
		}
	}
	w.capacity.setNodes(w.surveyed.nodes, sizes, shown)
	w.inbox.putSizes(sizes)
}

// usesPartition reports whether a queue's jobs may run in a partition.
func usesPartition(q plan.Queue, p sbatch.Partition) bool {
	return q.Partition == "" && p.Default || slices.Contains(strings.Split(q.Partition, ","), p.Name)
}

// nodesOf returns the sum of the nodes of a queue's partitions, and their sizes. An unknown part counts as
// boundless.
func nodesOf(q plan.Queue, partitions []sbatch.Partition) (codalab.Resources, sbatch.NodeSizes) {
	var all codalab.Resources
	var sizes sbatch.NodeSizes
	for _, p := range partitions {
		if usesPartition(q, p) {
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
