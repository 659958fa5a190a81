package slurmtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// What SetNode can make of a node.
const (
	NodeDown   = "DOWN"   // its jobs fail or are requeued, and their processes are killed
	NodeLost   = "LOST"   // does not answer any more: as DOWN, but its processes run on
	NodeDrain  = "DRAIN"  // its jobs run on, and no other starts
	NodeResume = "RESUME" // it is back
)

// SetNode changes a node's state; a controller that is stopped does not notice.
// When a lost one comes back, it is ordered to
// kill the processes that the controller does not expect there.
func (c *Controller) SetNode(now time.Time, name, state string) error {
	if c.stopped {
		return unanswered("update node "+name, away)
	}
	c.advance(now)
	n := c.node(name)
	if n == nil {
		return unanswered("update node "+name, "Invalid node name specified")
	}
	c.dirty = true
	switch state {
	case NodeDrain:
		n.drained = true
	case NodeResume:
		if !n.down && !n.drained {
			return unanswered("update node "+name, "Invalid node state specified")
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
		return &UnmodelledError{What: fmt.Sprintf("a node's state %q", state)}
	}
	return nil
}

// evict ends the jobs of a node that is down.
func (c *Controller) evict(now time.Time, name string, lost bool) {
	for i := range c.jobs {
		j := &c.jobs[i]
		if j.nodeName != name || j.state != sbatch.StateRunning && !j.completing {
			continue
		}
		if j.running && lost {
			c.orphans = append(c.orphans, j.launched())
		} else {
			c.order(Kill, j, 0)
		}
		if j.completing {
			c.completed(j)
		} else {
			c.failOn(now, j, sbatch.StateNodeFail)
		}
	}
}

// SetPartition makes a partition, or replaces the one of its name.
func (c *Controller) SetPartition(now time.Time, p Partition) {
	c.advance(now)
	c.dirty = true
	c.partitions = slices.Clone(c.partitions)
	if old := c.partition(p.Name); old != nil {
		*old = p
		return
	}
	c.partitions = append(c.partitions, p)
}

// DeletePartition removes a partition that no job uses.
func (c *Controller) DeletePartition(now time.Time, name string) error {
	c.advance(now)
	if c.partition(name) == nil {
		return unanswered("delete partition "+name, "Invalid partition name specified")
	}
	for i := range c.jobs {
		if j := &c.jobs[i]; j.Partition == name && (!j.state.Ended() || j.completing) {
			return unanswered("delete partition "+name, "Partition is in use")
		}
	}
	c.partitions = slices.DeleteFunc(slices.Clone(c.partitions), func(p Partition) bool { return p.Name == name })
	return nil
}

// Stop ends slurmctld: every command but sacct fails, nothing starts, no limit
// is kept, and what the nodes report is not heard.
func (c *Controller) Stop(now time.Time) {
	c.advance(now)
	c.stopped = true
}

// Start begins slurmctld again with the state it had. Jobs that ended meanwhile
// end now.
func (c *Controller) Start(now time.Time) {
	if !c.stopped {
		return
	}
	c.stopped, c.dirty = false, true
	late := c.unheard
	c.unheard = nil
	for _, u := range late {
		c.Ended(now, u.id, u.restart, u.end)
	}
}

// Lose is the loss of what slurmctld was told at a time or later; the zero time
// is everything. The ids of the jobs that it forgot are given out again, and
// their processes are killed. The accounting database keeps what it knows of
// them, unended for ever.
func (c *Controller) Lose(now, since time.Time) {
	c.advance(now)
	c.dirty = true
	lost := func(j job) bool { return !j.made.Before(since) }
	if first := slices.IndexFunc(c.jobs, lost); first >= 0 {
		c.next = c.jobs[first].id
	}
	if since.IsZero() {
		c.next = c.site.FirstJob
	}
	for i := range c.jobs {
		j := &c.jobs[i]
		if !lost(*j) {
			c.next = max(c.next, j.id+1)
			continue
		}
		c.order(Kill, j, 0)
		if j.state == sbatch.StateRunning || j.completing {
			j.again = false
			c.completed(j)
		}
	}
	c.jobs = slices.DeleteFunc(c.jobs, lost)
}
