package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestQueueShowsWhatOneRunCanHaveThere(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	gpu := slurmQueue("gpu", true, 7200, codalab.Resources{CPUs: 8, Memory: gib}, codalab.Resources{CPUs: 16, Memory: 2 * gib}, codalab.Resources{CPUs: 4, GPUs: 4, Memory: gib})
	gpu.Queue = &codalab.QueueInfo{
		MaxSeconds: 7200, DefaultSeconds: 600, PartitionSeconds: 9999, GPUTypes: map[string]int64{"a100": 4}, GPUImage: "cuda:12",
		Running: 3, Waiting: 2, Nodes: 4, IdleNodes: 1, WaitSeconds: new(int64(90)),
	}
	away := gpu
	away.Tag, away.Worker.ID, away.AwaySince, away.Exclusive = "more", "bridge-more", time.Unix(1_800_000_000, 0), false
	worker := func(id string, running int) Capacity {
		return Capacity{Worker: Worker{User: "me", ID: id}, Tag: "mine", Exclusive: true, Total: codalab.Resources{CPUs: 4, Memory: 8 * gib, Disk: int64(running)}, Running: running, RunsLeft: 1}
	}
	closed := worker("c", 0)
	closed.Tag, closed.Closed, closed.WhyClosed, closed.Total = "none", true, "the disk is full", codalab.Resources{}
	theirs := worker("x", 0)
	theirs.Worker.User = "you"
	site := Site{DefaultCPUImage: "cpu", DefaultGPUImage: "gpu", MaxTime: 24 * time.Hour}
	var got []codalab.Queue
	for _, q := range Queues([]Capacity{worker("b", 0), gpu, away, worker("a", 2), closed, theirs}, func(c *Capacity) bool { return c.Worker.User != "you" }) {
		got = append(got, q.Show(site))
	}
	sizes := []codalab.NodeSize{{CPUs: 4, GPUs: 4, MemoryBytes: gib}, {CPUs: 16, MemoryBytes: 2 * gib}}
	want := []codalab.Queue{
		{
			Tag: "gpu", Workers: 1, Sizes: sizes, GPUTypes: map[string]int64{"a100": 4}, MaxTime: 7200, DefaultTime: 86400,
			DefaultCPUImage: "cpu", DefaultGPUImage: "cuda:12", Running: 3, Waiting: 2, Nodes: 4, IdleNodes: 1, ExpectedWait: new(int64(90)),
		},
		{
			Tag: "mine", Workers: 2, Sizes: []codalab.NodeSize{{CPUs: 4, MemoryBytes: 8 * gib}}, MaxTime: 86400, DefaultTime: 86400,
			DefaultCPUImage: "cpu", DefaultGPUImage: "gpu", Running: 2, Nodes: 2, IdleNodes: 1,
		},
		{
			Tag: "more", Default: true, Sizes: sizes, GPUTypes: map[string]int64{"a100": 4}, MaxTime: 7200, DefaultTime: 86400,
			DefaultCPUImage: "cpu", DefaultGPUImage: "cuda:12", AwaySince: 1_800_000_000,
		},
		{
			Tag: "none", Workers: 1, Sizes: []codalab.NodeSize{}, MaxTime: 86400, DefaultTime: 86400, DefaultCPUImage: "cpu", DefaultGPUImage: "gpu",
			Nodes: 1, IdleNodes: 1, Closed: "the disk is full",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
