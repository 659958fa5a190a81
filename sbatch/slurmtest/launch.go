package slurmtest

import "github.com/cl-slurm/cl-slurm/sbatch"

// Launch is one start of a job on a node.
type Launch struct {
	Job sbatch.JobID
	// Number is SLURM_JOB_ID: that of a task is none of a JobID.
	Number sbatch.JobID
	// Restart counts the job's earlier starts: SLURM_RESTART_COUNT.
	Restart int
	Node    string
	// UID is the owner of the job.
	UID int
	// Request is the submission, with the partition, the account and the QOS that the job got. It must not
	// be changed.
	Request *sbatch.Request
	// GPUs has the indices of the job's GPUs.
	GPUs []int
}

// OrderKind is a kind of order to a node.
type OrderKind int

// The kinds of orders. All but Start concern the processes of an earlier launch, which may have ended
// already.
const (
	Start     OrderKind = iota + 1
	Terminate           // send TERM
	Kill                // send KILL
	Suspend             // stop the processes
	Resume              // continue them
)

// Order is an order of the controller to a node.
type Order struct {
	Kind OrderKind
	Launch
}

// order gives an order to a job's node.
func (c *Controller) order(kind OrderKind, j *job) {
	if j.running {
		c.orders = append(c.orders, Order{Kind: kind, Launch: j.launched()})
	}
}

func (j *job) launched() Launch {
	l := Launch{Job: j.id(), Number: j.number, Restart: j.restarts, Node: j.nodeName, UID: j.user, Request: &j.Request}
	for g := 0; j.gpus>>g != 0; g++ {
		if j.gpus&(1<<g) != 0 {
			l.GPUs = append(l.GPUs, g)
		}
	}
	return l
}
