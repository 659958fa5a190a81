package bridge

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// nodes is a Slurm with these partitions.
type nodes struct {
	sbatch.Scheduler

	partitions []sbatch.Partition
}

func (n nodes) Partitions(context.Context) ([]sbatch.Partition, error) { return n.partitions, nil }

func TestIdentityOffersWhatItsNodesHaveAndWhatItsRunsAskFor(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	b := &Bridge{Config: Config{
		Policy: plan.Policy{Queues: map[string]plan.Queue{
			"cpu":     {Name: "cpu"},
			"gpu":     {Name: "gpu", Partition: "old,new", GPUType: "a100"},
			"unset":   {Name: "unset", Partition: "unset"},
			"unknown": {Name: "unknown", Partition: "gone"},
		}},
		Scheduler: nodes{partitions: []sbatch.Partition{
			{Name: "main", Default: true, All: sbatch.NodeResources{CPUs: 640, Memory: 2560 * gib}, Most: sbatch.NodeResources{Memory: 256 * gib}, Sizes: sbatch.NodeSizes{{CPUs: 64, Memory: 256 * gib}}},
			{
				Name: "old", Most: sbatch.NodeResources{Memory: gib},
				Sizes: sbatch.NodeSizes{{CPUs: 8, Memory: 32 * gib, GPUs: 8, GPUTypes: map[string]int64{"p100": 8}}, {CPUs: 8, Memory: 32 * gib, GPUs: 2, GPUTypes: map[string]int64{"a100": 2}}},
				All:   sbatch.NodeResources{CPUs: 16, Memory: 64 * gib, GPUs: 10, GPUTypes: map[string]int64{"p100": 8, "a100": 2}},
			},
			{
				Name: "new", Most: sbatch.NodeResources{Memory: gib},
				Sizes: sbatch.NodeSizes{{CPUs: 32, Memory: 16 * gib, GPUs: 4, GPUTypes: map[string]int64{"a100": 4}}},
				All:   sbatch.NodeResources{CPUs: 32, Memory: 32 * gib, GPUs: 4, GPUTypes: map[string]int64{"a100": 4}},
			},
			{Name: "unset", All: sbatch.NodeResources{CPUs: 8, Memory: 1 << 20}, Most: sbatch.NodeResources{Memory: 1 << 20}, Sizes: sbatch.NodeSizes{{CPUs: 8, Memory: 1 << 20}}},
		}},
	}}
	b.assemble()
	b.board.init()
	capacities := func() map[string]codalab.Resources {
		all := map[string]codalab.Resources{}
		for name := range b.Policy.Queues {
			all[name] = b.board.capacity.of(name, false, time.Time{})
		}
		return all
	}
	for name, got := range capacities() {
		if got != boundless() {
			t.Errorf("%s has capacity %+v before Slurm was asked", name, got)
		}
	}
	if err := b.nodes.survey(t.Context()); err != nil {
		t.Fatal(err)
	}
	for bundle, row := range map[string]plan.Row{
		"0x1": {Phase: plan.Running, Resources: codalab.Resources{CPUs: 4, Memory: gib}},
		"0x2": {Phase: plan.Finalizing, Resources: codalab.Resources{CPUs: 2, GPUs: 1, Memory: 2 * gib}},
		"0x3": {Phase: plan.Done, Resources: codalab.Resources{CPUs: 100, GPUs: 100, Memory: 100 * gib}},
	} {
		row.Bundle, row.Queue = bundle, "gpu"
		show(b, row)
	}
	want := map[string]codalab.Resources{
		"cpu":     {CPUs: 640, Memory: 2560 * gib},
		"gpu":     {CPUs: 48 + 6, GPUs: 6 + 1, Memory: (96 + 3) * gib},
		"unset":   {CPUs: 8, Memory: boundlessBytes},
		"unknown": boundless(),
	}
	if diff := cmp.Diff(want, capacities()); diff != "" {
		t.Errorf("capacities (-want +got):\n%s", diff)
	}
	sizes := map[string][]codalab.NodeSize{}
	for name, q := range b.Policy.Queues {
		q.MemoryOverhead = gib
		sizes[name] = q.Requestable(b.board.capacity.nodeSizes(name))
	}
	wantSizes := map[string][]codalab.NodeSize{
		"cpu": {{CPUs: 64, MemoryBytes: 255 * gib}},
		"gpu": {
			{CPUs: 8, GPUs: 0, MemoryBytes: 31 * gib}, {CPUs: 8, GPUs: 2, MemoryBytes: 31 * gib}, {CPUs: 32, GPUs: 4, MemoryBytes: 15 * gib},
		},
		"unset":   {{CPUs: 8, MemoryBytes: boundlessBytes - gib}},
		"unknown": nil,
	}
	if diff := cmp.Diff(wantSizes, sizes); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
}
