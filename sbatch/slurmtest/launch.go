package slurmtest

import "github.com/cl-slurm/cl-slurm/sbatch"

// Launch is one beginning of a job on a node.
type Launch struct {
	Job sbatch.JobID
	// Restart is how often the job has begun before: SLURM_RESTART_COUNT.
	Restart int
	Node    string
	// UID is the owner of the job.
	UID int
	// Request is what was submitted, with the partition, the account and the
	// QOS that the job was given. It is not to be changed.
	Request *sbatch.Request
	// GPUs are the indices of those it may use.
	GPUs []int
}

// OrderKind is what a node is told to do.
type OrderKind int

// The kinds of orders. All but Start concern the processes of an earlier launch;
// they may have ended already.
const (
	Start     OrderKind = iota + 1
	Terminate           // send TERM
	Kill                // send KILL
	Suspend             // stop them
	Resume              // let them go on
)

// Order is what a node is told to do.
type Order struct {
	Kind OrderKind
	Launch
}

// order tells a job's node to do something.
func (c *Controller) order(kind OrderKind, j *job) {
	if j.running {
		c.orders = append(c.orders, Order{Kind: kind, Launch: j.launched()})
	}
}

func (j *job) launched() Launch {
	l := Launch{Job: j.id, Restart: j.restarts, Node: j.nodeName, UID: j.user, Request: &j.Request}
	for g := 0; j.gpus>>g != 0; g++ {
		if j.gpus&(1<<g) != 0 {
			l.GPUs = append(l.GPUs, g)
		}
	}
	return l
}
