package slurmtest

import "github.com/cl-slurm/cl-slurm/sbatch"

// Launch is one beginning of a job on a node.
type Launch struct {
	Job sbatch.JobID
	// Restart is how often the job has begun before: SLURM_RESTART_COUNT.
	Restart int
	Node    string
	// UID is whose job it is, Array and Task are the id of its array and its
	// index in it; Array is 0 for a plain job.
	UID   int
	Array sbatch.JobID
	Task  int
	// Request is what was submitted, with the partition, the account and the
	// QOS that the job was given. It is not to be changed.
	Request *sbatch.Request
	// GPUs are the indices of those it may use.
	GPUs []int

	spec *spec
}

// OrderKind is what a node is told to do.
type OrderKind int

// The kinds of orders. Each but Start concerns the processes of a launch that
// was ordered before; they may have ended already.
const (
	Start     OrderKind = iota + 1
	Warn                // send Order.Signal to the batch script
	Terminate           // send TERM
	Kill                // send KILL
)

// Order is what a node is told to do.
type Order struct {
	Kind OrderKind
	Launch
	// Signal is that of a warning.
	Signal int
}

// order tells a job's node to do something.
func (c *Controller) order(kind OrderKind, j *job, signal int) {
	if !j.running {
		return
	}
	c.orders = append(c.orders, Order{Kind: kind, Launch: j.launched(), Signal: signal})
}

func (j *job) launched() Launch {
	l := Launch{
		Job: j.id, Restart: j.restarts, Node: j.nodeName, UID: j.user, Array: j.array, Task: j.task,
		Request: &j.Request, spec: j.spec,
	}
	for g := 0; j.gpus>>g != 0; g++ {
		if j.gpus&(1<<g) != 0 {
			l.GPUs = append(l.GPUs, g)
		}
	}
	return l
}
