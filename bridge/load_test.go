package bridge

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// loadRow is a row of queue cpu that was submitted at a time and is in a phase since another one.
func loadRow(bundle string, phase plan.Phase, submitted, since time.Time) plan.Row {
	r := cpuRow(bundle, phase)
	r.PhaseSince, r.SubmittedAt = since, submitted
	return r
}

func TestExpectedWaitIsTheMedianOfTheLastOnesOrOfThoseThatWait(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	expects := func(when string, want any) {
		t.Helper()
		in, _ := r.CheckIn(r.queue)
		var got any
		if in.Queue.WaitSeconds != nil {
			got = *in.Queue.WaitSeconds
		}
		if got != want {
			t.Errorf("%s: expected wait %v, want %v", when, got, want)
		}
	}
	expects("before any run", nil)
	show(r.Bridge, loadRow("0xq", plan.Queued, r.now, r.now))
	r.now = r.now.Add(time.Hour)
	expects("while the first job waits", nil)
	begins := func(bundle string, waited time.Duration) {
		show(r.Bridge, loadRow(bundle, plan.Queued, r.now.Add(-waited), r.now.Add(-waited)))
		row := loadRow(bundle, plan.Running, r.now.Add(-waited), r.now)
		show(r.Bridge, row)
		row.Progress = "half of it"
		show(r.Bridge, row) // it does not begin again
	}
	begins("0xq", time.Hour)
	expects("after the first", int64(3600))
	begins("0x1", 2*time.Minute)
	begins("0x2", 3*time.Minute)
	expects("after three", int64(180))
	for n := range mostWaits {
		begins(fmt.Sprintf("0xa%d", n), time.Minute)
	}
	expects("after many", int64(60))
	show(r.Bridge, loadRow("0xw", plan.Queued, r.now, r.now))
	r.now = r.now.Add(10 * time.Minute)
	expects("while a job waits for longer", int64(600))
	show(r.Bridge, loadRow("0xw", plan.Running, r.now.Add(-10*time.Minute), r.now))
	expects("after it has begun", int64(60))
	r.now = r.now.Add(waitsCountFor + time.Second)
	expects("a day later", nil)
}

func TestCheckInCountsTheRunsOfItsQueue(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	counts := func(running, waiting int64) {
		t.Helper()
		in, _ := r.CheckIn(r.queue)
		if in.Queue.Running != running || in.Queue.Waiting != waiting {
			t.Errorf("%d run and %d wait, want %d and %d", in.Queue.Running, in.Queue.Waiting, running, waiting)
		}
	}
	show(r.Bridge, plan.Row{Bundle: "0x9", Queue: "gpu", Phase: plan.Running, Run: &codalab.RunBundle{}})
	counts(0, 0)
	for bundle, phase := range map[string]plan.Phase{
		"0x1": plan.Claiming, "0x2": plan.Staging, "0x3": plan.Submitting, "0x4": plan.Queued,
		"0x5": plan.Running, "0x6": plan.Running, "0x7": plan.Collecting, "0x8": plan.Done,
	} {
		show(r.Bridge, cpuRow(bundle, phase))
	}
	counts(2, 4)
	show(r.Bridge, cpuRow("0x4", plan.Running))
	show(r.Bridge, cpuRow("0x5", plan.Collecting))
	counts(2, 3)
	gone := cpuRow("0x6", plan.Running)
	r.board.remove(&gone)
	counts(1, 3)
}

func TestCheckInDescribesItsQueue(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	day := 24 * time.Hour
	gpus := func(kinds map[string]int64) sbatch.NodeResources {
		return sbatch.NodeResources{CPUs: 64, Memory: 1 << 38, GPUTypes: kinds}
	}
	r.nodes.scheduler = nodes{partitions: []sbatch.Partition{
		{Name: "old", State: "up", Nodes: 4, Ready: 3, Idle: 2, MaxTime: day, Most: gpus(map[string]int64{"v100": 2})},
		{Name: "new", State: "up", Nodes: 2, Ready: 2, Idle: 1, MaxTime: 2 * day, Most: gpus(map[string]int64{"a100": 4, "v100": 1})},
		{Name: "off", State: "down", Nodes: 9, Ready: 9, Idle: 9},
	}}
	queues := map[string]plan.Queue{
		"both":  {Name: "both", Partition: "old,new", DefaultTime: time.Hour, DefaultCPUImage: "python:3.12", DefaultGPUImage: "cuda:12"},
		"a100":  {Name: "a100", Partition: "new", GPUType: "a100", MaxTime: 12 * time.Hour},
		"off":   {Name: "off", Partition: "new,off"},
		"other": {Name: "other", Partition: "gone"},
	}
	r.nodes.inForce = following(plan.Policy{Queues: queues})
	if err := r.nodes.survey(t.Context()); err != nil {
		t.Fatal(err)
	}
	describes := func(want map[string]codalab.QueueInfo) {
		t.Helper()
		for name, want := range want {
			in, _ := r.CheckIn(queues[name])
			if diff := cmp.Diff(&want, in.Queue); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
	describes(map[string]codalab.QueueInfo{
		"both":  {GPUTypes: map[string]int64{"a100": 4, "v100": 2}, DefaultSeconds: 3600, PartitionSeconds: 2 * 86400, Elastic: true, CPUImage: "python:3.12", GPUImage: "cuda:12", Nodes: 5, IdleNodes: 3},
		"a100":  {GPUTypes: map[string]int64{"a100": 4}, MaxSeconds: 12 * 3600, DefaultSeconds: 12 * 3600, Elastic: true, Nodes: 2, IdleNodes: 1},
		"off":   {GPUTypes: map[string]int64{"a100": 4, "v100": 1}, Elastic: true, Nodes: 2, IdleNodes: 1}, // the partition that is off has no bound
		"other": {Elastic: true},
	})
	r.board.capacity.setComplete(true) // Slurm's settings are known
	describes(map[string]codalab.QueueInfo{"other": {}})
}
