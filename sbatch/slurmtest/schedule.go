package slurmtest

import (
	"cmp"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// node is what the controller knows of a node.
type node struct {
	*Node
	freeCPUs, freeMemory int64
	busyGPUs             uint64
	down, drained        bool
}

func (c *Controller) node(name string) *node {
	for i := range c.nodes {
		if c.nodes[i].Name == name {
			return &c.nodes[i]
		}
	}
	return nil
}

// Advance does what is due, and returns the orders for the nodes since it was
// last called, oldest first. They are the caller's to carry out or to lose; the
// slice is valid until the next call of any method.
func (c *Controller) Advance(now time.Time) []Order {
	c.advance(now)
	orders := c.orders
	c.orders = c.orders[:0]
	return orders
}

// Due is when there is something to be done next; zero is never.
func (c *Controller) Due() time.Time {
	if c.stopped {
		return time.Time{}
	}
	return c.due
}

func (c *Controller) advance(now time.Time) {
	if c.stopped || !c.dirty && (c.due.IsZero() || now.Before(c.due)) {
		return
	}
	c.dirty = false
	for i := range c.jobs {
		c.tick(now, &c.jobs[i])
	}
	c.purge(now)
	c.schedule(now)
	c.due = time.Time{}
	for i := range c.jobs {
		if t := c.dueOf(now, &c.jobs[i]); !t.IsZero() && (c.due.IsZero() || t.Before(c.due)) {
			c.due = t
		}
	}
}

// tick does what a job's clock says.
func (c *Controller) tick(now time.Time, j *job) {
	if j.state == sbatch.StateRunning && j.warnWith != 0 && !j.warned && !now.Before(c.warnAt(j)) {
		j.warned = true
		if j.warnBatch {
			c.order(Warn, j, j.warnWith)
		}
	}
	if j.state == sbatch.StateRunning && !now.Before(c.limitAt(j)) {
		c.terminate(c.limitAt(j), j, sbatch.StateTimeout, "TimeLimit")
	}
	if j.completing && !j.killAt.IsZero() && !now.Before(j.killAt) {
		j.killAt = time.Time{}
		c.order(Kill, j, 0)
	}
	if j.completing && !j.cleared.IsZero() && !now.Before(j.cleared) {
		c.completed(j)
	}
}

// dueOf is when a job's clock says something next.
func (c *Controller) dueOf(now time.Time, j *job) time.Time {
	switch {
	case j.completing && !j.cleared.IsZero():
		return j.cleared
	case j.completing:
		return j.killAt
	case j.state == sbatch.StateRunning && j.warnWith != 0 && !j.warned:
		return c.warnAt(j)
	case j.state == sbatch.StateRunning:
		return c.limitAt(j)
	case j.state.Ended():
		return j.end.Add(c.site.MinJobAge)
	case j.held:
		return time.Time{}
	case now.Before(j.ready):
		return j.ready
	case now.Before(j.begin):
		return j.begin
	}
	return time.Time{}
}

// limitAt is when a job that runs too long is found out.
func (c *Controller) limitAt(j *job) time.Time { return c.look(j.start.Add(j.limit)) }

// warnAt is when the warning before the limit is sent: a look at the limits
// early (Slurm src/slurmctld/job_mgr.c: job_time_limit).
func (c *Controller) warnAt(j *job) time.Time {
	return c.look(j.start.Add(j.limit - j.warn - c.site.LimitEvery))
}

// look is the first look at the time limits that is not before t.
func (c *Controller) look(t time.Time) time.Time {
	if c.site.LimitEvery <= 0 {
		return t
	}
	if at := t.Truncate(c.site.LimitEvery); !at.Before(t) {
		return at
	}
	return t.Truncate(c.site.LimitEvery).Add(c.site.LimitEvery)
}

// purge forgets jobs that ended MinJobAge ago.
func (c *Controller) purge(now time.Time) {
	keep := func(j *job) bool {
		return !j.state.Ended() || j.completing || now.Sub(j.end) < c.site.MinJobAge
	}
	for i := range c.jobs {
		if !keep(&c.jobs[i]) {
			c.jobs = slices.DeleteFunc(c.jobs, func(j job) bool { return !keep(&j) })
			return
		}
	}
}

// schedule starts the jobs that can start: first those of less nice, then
// those that came first. A job that does not fit holds no other back.
func (c *Controller) schedule(now time.Time) {
	c.scratch = c.scratch[:0]
	for i := range c.jobs {
		j := &c.jobs[i]
		if j.state != sbatch.StatePending || j.completing || j.held || now.Before(j.ready) {
			continue
		}
		if now.Before(j.begin) {
			j.reason = "BeginTime"
			continue
		}
		c.scratch = append(c.scratch, i)
	}
	slices.SortStableFunc(c.scratch, func(a, b int) int { return cmp.Compare(c.jobs[a].Nice, c.jobs[b].Nice) })
	first := true
	for _, i := range c.scratch {
		for c.try(now, i, first) {
			if len(c.jobs[i].waiting) == 0 {
				break
			}
		}
		first = first && c.jobs[i].reason != "Resources"
	}
}

// try starts a job, or the next task of an array, or notes why not.
func (c *Controller) try(now time.Time, i int, first bool) bool {
	j := &c.jobs[i]
	j.begin = time.Time{}
	if j.atOnce > 0 && c.runningTasks(j.array) >= j.atOnce {
		j.reason = "JobArrayTaskLimit"
		return false
	}
	p := c.partition(j.Partition)
	if why := c.hopeless(p, j); why != "" {
		j.reason = why
		return false
	}
	at, gpus := c.fit(p, j)
	if at == noNode {
		if j.reason, j.expected = "Priority", (time.Time{}); first {
			j.reason, j.expected = "Resources", c.earliest(p)
		}
		if away := c.unusable(p, j); away != "" {
			j.reason, j.expected = "ReqNodeNotAvail, UnavailableNodes:"+away, time.Time{}
		}
		return false
	}
	if len(j.waiting) > 0 {
		j = c.split(i)
	}
	c.launch(now, j, at, gpus)
	return true
}

func (n *node) usable() bool { return n != nil && !n.down && !n.drained }

// unusable are the nodes that a job waits for to come back, when there is none
// to wait for else.
func (c *Controller) unusable(p *Partition, j *job) string {
	var away []string
	for _, name := range p.Nodes {
		switch {
		case j.nodeList != "" && j.nodeList != name:
		case c.node(name).usable():
			return ""
		default:
			away = append(away, name)
		}
	}
	return nodeList(away)
}

func (c *Controller) partition(name string) *Partition {
	for i := range c.partitions {
		if c.partitions[i].Name == name {
			return &c.partitions[i]
		}
	}
	return nil
}

// hopeless is the reason of a job that waits for a change of the cluster, and
// not for other jobs.
func (c *Controller) hopeless(p *Partition, j *job) string {
	switch {
	case p == nil || p.State == "DOWN" || p.State == "DRAIN":
		return "PartitionDown"
	case p.State == "INACTIVE":
		return "PartitionInactive"
	case j.nodes > int64(len(p.Nodes)):
		return "PartitionNodeLimit"
	case p.MaxTime > 0 && j.limit > p.MaxTime:
		return "PartitionTimeLimit"
	case !slices.ContainsFunc(p.Nodes, func(name string) bool { n := c.node(name); return n != nil && n.CPUs >= j.CPUs }):
		return "PartitionConfig"
	}
	return ""
}

// fit finds a node with room.
func (c *Controller) fit(p *Partition, j *job) (int, uint64) {
	for _, name := range p.Nodes {
		for i := range c.nodes {
			n := &c.nodes[i]
			if n.Name != name || !n.usable() || j.nodeList != "" && j.nodeList != name || !n.has(j.spec) ||
				n.freeCPUs < max(1, j.CPUs) || n.freeMemory < c.memoryOf(j.spec) {
				continue
			}
			var gpus uint64
			left := j.GPUs
			for g := 0; g < n.GPUs && left > 0; g++ {
				if n.busyGPUs&(1<<g) == 0 {
					gpus, left = gpus|1<<g, left-1
				}
			}
			if left == 0 {
				return i, gpus
			}
		}
	}
	return noNode, 0
}

// earliest is when the first job on a partition's nodes reaches its limit.
func (c *Controller) earliest(p *Partition) time.Time {
	var first time.Time
	for i := range c.jobs {
		j := &c.jobs[i]
		if j.state != sbatch.StateRunning || !slices.Contains(p.Nodes, j.nodeName) {
			continue
		}
		if end := j.start.Add(j.limit); first.IsZero() || end.Before(first) {
			first = end
		}
	}
	return first
}

func (c *Controller) runningTasks(array sbatch.JobID) int {
	n := 0
	for i := range c.jobs {
		if j := &c.jobs[i]; j.array == array && (j.state == sbatch.StateRunning || j.completing) {
			n++
		}
	}
	return n
}

// split gives the first waiting task of an array a record of its own; the last
// one keeps the array's.
func (c *Controller) split(i int) *job {
	j := &c.jobs[i]
	task := j.waiting[0]
	if j.waiting = j.waiting[1:]; len(j.waiting) == 0 {
		j.task = task
		c.rows[j.row].task, c.rows[j.row].waiting = task, nil
		return j
	}
	c.rows[j.row].waiting = j.waiting
	own := *j
	own.id, own.task, own.waiting = c.next, task, nil
	c.next++
	own.row = c.newRow(&own)
	c.jobs = append(c.jobs, own)
	return &c.jobs[len(c.jobs)-1]
}

func (c *Controller) launch(now time.Time, j *job, at int, gpus uint64) {
	n := &c.nodes[at]
	n.freeCPUs -= max(1, j.CPUs)
	n.freeMemory -= c.memoryOf(j.spec)
	n.busyGPUs |= gpus
	if j.reason != "None" {
		c.rows[j.row].waited = j.reason
	}
	j.state, j.reason, j.start, j.expected = sbatch.StateRunning, "None", now, time.Time{}
	j.node, j.nodeName, j.gpus, j.running, j.warned = at, n.Name, gpus, true, false
	r := &c.rows[j.row]
	r.start, r.node = now, n.Name
	c.order(Start, j, 0)
}
