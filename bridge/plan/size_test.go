package plan_test

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// TestRefusalNamesTheNearestRequestThatFits, and the other queues that have such a node.
func TestRefusalNamesTheNearestRequestThatFits(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	a100 := func(n int64) map[string]int64 { return map[string]int64{"a100": n} }
	for name, c := range map[string]struct {
		asked  codalab.Resources
		nodes  sbatch.NodeSizes
		gpu    string
		others map[string]plan.Queue
		want   string // empty if a node is large enough
	}{
		"fits":         {asked: codalab.Resources{CPUs: 64, Memory: 249 * gib}, nodes: sbatch.NodeSizes{{CPUs: 64, Memory: 250 * gib}}},
		"unknown":      {asked: codalab.Resources{CPUs: 999, Memory: 999 * gib}},
		"overhead":     {asked: codalab.Resources{CPUs: 2, Memory: 250 * gib}, nodes: sbatch.NodeSizes{{CPUs: 64, Memory: 250 * gib}}, want: "--request-cpus 2 --request-memory 249g"},
		"no CPUs":      {asked: codalab.Resources{Memory: 250 * gib}, nodes: sbatch.NodeSizes{{CPUs: 64, Memory: 250 * gib}}, want: "--request-cpus 1 --request-memory 249g"},
		"small nodes":  {asked: codalab.Resources{CPUs: 2, Memory: 2 * gib}, nodes: sbatch.NodeSizes{{CPUs: 1, Memory: 600 << 20}}, want: "--request-cpus 1 --request-memory 536m"},
		"one of two":   {asked: codalab.Resources{CPUs: 64, Memory: 100 * gib}, nodes: sbatch.NodeSizes{{CPUs: 128, Memory: 51 * gib}, {CPUs: 8, Memory: 1000 * gib}}, want: "--request-cpus 64 --request-memory 50g"},
		"GPUs":         {asked: codalab.Resources{CPUs: 1, GPUs: 6}, nodes: sbatch.NodeSizes{{CPUs: 64}, {CPUs: 8, GPUs: 4}}, want: "--request-cpus 1 --request-gpus 4"},
		"another type": {asked: codalab.Resources{CPUs: 1, GPUs: 2}, gpu: "a100", nodes: sbatch.NodeSizes{{CPUs: 8, GPUs: 8}, {CPUs: 8, GPUs: 1, GPUTypes: a100(1)}}, want: "--request-cpus 1 --request-gpus 1"},
		"no GPUs":      {asked: codalab.Resources{CPUs: 1, GPUs: 1}, nodes: sbatch.NodeSizes{{CPUs: 8}}, want: "No node of the queue is that large."},
		"another queue": {
			asked: codalab.Resources{CPUs: 1, GPUs: 1}, nodes: sbatch.NodeSizes{{CPUs: 8}}, want: "No node of the queue is that large. Queues with nodes that are large enough: --request-queue gpu.",
			others: map[string]plan.Queue{
				"gpu": {Name: "gpu", Tag: "gpu", Nodes: sbatch.NodeSizes{{CPUs: 8, GPUs: 8}}}, "unknown": {Name: "unknown", Tag: "unknown"},
				"small": {Name: "small", Tag: "small", Nodes: sbatch.NodeSizes{{CPUs: 8}}}, "theirs": {Name: "theirs", Tag: "theirs", Group: "them", Nodes: sbatch.NodeSizes{{CPUs: 8, GPUs: 8}}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, r := policy(), rowIn(plan.Submitting)
			q := p.Queues["cpu"]
			q.Nodes, q.GPUType = c.nodes, c.gpu
			p.Queues = map[string]plan.Queue{"cpu": q}
			for name, other := range c.others {
				p.Queues[name] = other
			}
			r.Resources = c.asked
			refused := plan.News{Submitted: &plan.SbatchAnswer{Attempt: 1, Refused: true, Words: "no"}}
			r.RefusedAlone = 2 // a refusal that contradicts the nodes is the last one
			after, _ := p.Next(epoch, r, refused)
			if after.Verdict == nil || after.Verdict.Cause != spool.CauseUser {
				t.Fatalf("%s: %s", after.Phase, after.Reason)
			}
			said := after.Verdict.Failure
			switch {
			case c.want == "" && strings.Contains(said, "No node"), c.want != "" && !strings.Contains(said, c.want):
				t.Errorf("%q, want %q", said, c.want)
			case q.Fits(c.asked) != (c.want == ""):
				t.Errorf("fits: %v", q.Fits(c.asked))
			}
		})
	}
}
