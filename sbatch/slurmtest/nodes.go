package slurmtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// node is the controller's record of a node.
type node struct {
	*Node
	freeCPUs, freeMemory int64
	busyGPUs             uint64
	down, drained        bool
}

// node returns nil if the node does not exist.
func (c *Controller) node(name string) *node {
	for i := range c.nodes {
		if c.nodes[i].Name == name {
			return &c.nodes[i]
		}
	}
	return nil
}

func (n *node) usable() bool { return n != nil && !n.down && !n.drained }

// The states that SetNode gives to a node.
const (
	NodeDown   = "DOWN"   // its jobs fail or are requeued, and their processes are killed
	NodeLost   = "LOST"   // it does not answer: like DOWN, but its processes run on
	NodeDrain  = "DRAIN"  // its jobs run on, and no other starts
	NodeResume = "RESUME" // it is back
)

// SetNode changes a node's state; a stopped controller does not notice. When a lost node comes back, the
// controller orders it to kill the processes that it does not expect there.
func (c *Controller) SetNode(now time.Time, name, state string) error {
	op := "update node " + name
	if c.stopped {
		return failed(op, unreachable)
	}
	c.advance(now)
	n := c.node(name)
	if n == nil {
		return failed(op, "Invalid node name specified")
	}
	c.dirty = true
	switch state {
	case NodeDrain:
		n.drained = true
	case NodeResume:
		if n.usable() {
			return failed(op, "Invalid node state specified")
		}
		n.down, n.drained = false, false
		for _, l := range c.orphans {
			if l.Node == name {
				c.orders = append(c.orders, Order{Kind: Kill, Launch: l})
			}
		}
		c.orphans = slices.DeleteFunc(c.orphans, func(l Launch) bool { return l.Node == name })
	case NodeDown, NodeLost:
		n.down = true
		c.evict(now, name, state == NodeLost)
	default:
		return fmt.Errorf("%s: unknown state %q", op, state)
	}
	return nil
}

// evict ends the jobs of a node that is down.
func (c *Controller) evict(now time.Time, name string, lost bool) {
	for i := range c.jobs {
		j := &c.jobs[i]
		if j.nodeName != name || !j.onNode() && !j.completing {
			continue
		}
		if j.running && lost {
			c.orphans = append(c.orphans, j.launched())
		} else {
			c.order(Kill, j)
		}
		if j.completing {
			c.complete(now, j)
		} else {
			c.failOnNode(now, j, sbatch.StateNodeFail)
		}
	}
}

// partition returns nil if the partition does not exist.
func (c *Controller) partition(name string) *Partition {
	for i := range c.partitions {
		if c.partitions[i].Name == name {
			return &c.partitions[i]
		}
	}
	return nil
}

// AddPartition makes a partition.
func (c *Controller) AddPartition(p Partition) {
	c.partitions = append(slices.Clone(c.partitions), p)
	c.dirty = true
}

// Partitions returns all partitions, including hidden ones.
func (c *Controller) Partitions() ([]sbatch.Partition, error) {
	if c.stopped {
		return nil, failed("list partitions", "slurm_load_partitions: "+unreachable)
	}
	all := make([]sbatch.Partition, 0, len(c.partitions))
	for _, p := range c.partitions {
		shown := sbatch.Partition{Name: p.Name, Default: p.Default, State: "up", MaxTime: p.MaxTime, DefaultTime: p.DefaultTime, Nodes: len(p.Nodes)}
		if p.State != "" {
			shown.State = strings.ToLower(p.State)
		}
		for _, name := range p.Nodes {
			n := c.node(name)
			if n.usable() {
				shown.Ready++
				if n.freeCPUs == n.CPUs {
					shown.Idle++
				}
			}
			r := sbatch.NodeResources{CPUs: n.CPUs, Memory: n.MemoryMiB << 20, GPUs: int64(n.GPUs)}
			if n.GPUs > 0 {
				r.GPUTypes = map[string]int64{n.GPUType: r.GPUs}
			}
			shown.Most = shown.Most.Max(r)
			shown.All.Add(r, 1)
			shown.Sizes = shown.Sizes.With(r)
		}
		all = append(all, shown)
	}
	return all, nil
}

// Stop ends slurmctld. Then only the accounting database answers, no job starts, no limit is enforced, and
// reports of the nodes do not arrive.
func (c *Controller) Stop(now time.Time) {
	c.advance(now)
	c.stopped = true
}

// Start starts slurmctld again with its former state. Jobs that ended while it was stopped end now.
func (c *Controller) Start(now time.Time) {
	if !c.stopped {
		return
	}
	c.stopped, c.dirty = false, true
	missed := c.missed
	c.missed = nil
	for _, m := range missed {
		c.Ended(now, m.id, m.restart, m.end)
	}
}

// Lose makes slurmctld lose all its jobs. It assigns their ids again, and their processes are killed. The
// accounting database keeps its records; those of jobs that had not ended never get an end.
func (c *Controller) Lose(now time.Time) {
	c.advance(now)
	for i := range c.jobs {
		j := &c.jobs[i]
		c.order(Kill, j)
		if j.onNode() || j.completing {
			j.requeuing = false
			c.complete(now, j)
		}
	}
	clear(c.tasks)
	c.jobs, c.nextID, c.dirty = c.jobs[:0], c.site.FirstJob, true
}
