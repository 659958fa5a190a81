package slurmtest

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Advance does everything that is due, and returns the orders for the nodes since the last call, oldest
// first. The slice is valid until the next call of any method.
func (c *Controller) Advance(now time.Time) []Order {
	c.advance(now)
	orders := c.orders
	c.orders = c.orders[:0]
	return orders
}

// Due returns the time at which Advance has something to do next; zero for never.
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
		c.applyTimers(now, &c.jobs[i])
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

// applyTimers does everything that is due for a job.
func (c *Controller) applyTimers(now time.Time, j *job) {
	if warning := c.warningAt(j); !warning.IsZero() && !now.Before(warning) {
		j.warned = true
		c.order(Terminate, j)
	}
	if j.state == sbatch.StateRunning && !now.Before(c.limitAt(j)) {
		c.terminate(c.limitAt(j), j, sbatch.StateTimeout, "TimeLimit")
	}
	if j.completing && !j.killAt.IsZero() && !now.Before(j.killAt) {
		j.killAt = time.Time{}
		c.order(Kill, j)
	}
	if j.completing && !j.cleared.IsZero() && !now.Before(j.cleared) {
		c.complete(now, j)
	}
}

// dueOf returns the time at which applyTimers or schedule has something to do for a job.
func (c *Controller) dueOf(now time.Time, j *job) time.Time {
	switch {
	case j.completing && !j.cleared.IsZero():
		return j.cleared
	case j.completing:
		return j.killAt
	case !c.warningAt(j).IsZero():
		return c.warningAt(j)
	case j.state == sbatch.StateRunning:
		return c.limitAt(j)
	case j.state.Ended():
		return j.end.Add(c.site.MinJobAge)
	case j.held:
		return time.Time{}
	case now.Before(j.schedulable):
		return j.schedulable
	case now.Before(j.begin):
		return j.begin
	}
	return time.Time{}
}

// limitAt returns the time at which slurmctld notices that a job has reached its time limit: it checks
// every LimitEvery.
func (c *Controller) limitAt(j *job) time.Time {
	limit, every := j.start.Add(j.limit+j.suspended), c.site.LimitEvery
	if every <= 0 || limit.Truncate(every).Equal(limit) {
		return limit
	}
	return limit.Truncate(every).Add(every)
}

// warningAt returns the time at which a job's script gets the TERM of --signal; zero for never, and after the
// signal. Slurm sends it up to a minute earlier.
func (c *Controller) warningAt(j *job) time.Time {
	if j.warning == 0 || j.warned || j.state != sbatch.StateRunning {
		return time.Time{}
	}
	return c.limitAt(j).Add(-j.warning)
}

// purge forgets jobs that ended MinJobAge ago.
func (c *Controller) purge(now time.Time) {
	keep := func(j *job) bool {
		return !j.state.Ended() || j.completing || now.Sub(j.end) < c.site.MinJobAge
	}
	purged := false
	for i := range c.jobs {
		if j := &c.jobs[i]; !keep(j) {
			purged = true
			delete(c.tasks, j.id())
		}
	}
	if purged {
		c.jobs = slices.DeleteFunc(c.jobs, func(j job) bool { return !keep(&j) })
	}
}

// schedule starts the jobs that can start: those with less nice first, then those that came first. A job that
// does not fit blocks no other job.
func (c *Controller) schedule(now time.Time) {
	c.pending = c.pending[:0]
	for i := range c.jobs {
		j := &c.jobs[i]
		if j.state != sbatch.StatePending || j.completing || j.held || now.Before(j.schedulable) {
			continue
		}
		if now.Before(j.begin) {
			j.reason = "BeginTime"
			continue
		}
		c.pending = append(c.pending, i)
	}
	slices.SortStableFunc(c.pending, func(a, b int) int { return cmp.Compare(c.jobs[a].Nice, c.jobs[b].Nice) })
	first := true
	for _, i := range c.pending {
		c.startJobs(now, i, first)
		first = first && c.jobs[i].reason != "Resources"
	}
}

// startJobs starts the job at an index, or as many of the tasks that share its record as there is room for. first is set
// while no other job waits for resources.
func (c *Controller) startJobs(now time.Time, i int, first bool) {
	for own := -1; own != i; {
		at, gpus := c.place(&c.jobs[i], first)
		if at == noNode {
			return
		}
		if own = i; c.jobs[i].shared {
			own = c.split(i, c.jobs[i].waiting[0])
		}
		c.launch(now, &c.jobs[own], at, gpus)
	}
}

// place returns a node for a job, and its GPUs there, or notes the reason for its waiting.
func (c *Controller) place(j *job, first bool) (at int, gpus uint64) {
	j.begin = time.Time{}
	p := c.partition(j.Partition)
	if reason := c.blocked(p, j); reason != "" {
		j.reason = reason
		return noNode, 0
	}
	if at, gpus = c.findNode(p, j); at != noNode {
		return at, gpus
	}
	if j.reason, j.expectedStart = "Priority", (time.Time{}); first {
		j.reason, j.expectedStart = "Resources", c.earliestEnd(p)
	}
	if nodes := c.unusable(p, j); nodes != "" {
		j.reason, j.expectedStart = c.site.Slurm.unavailable(nodes), time.Time{}
	}
	return noNode, 0
}

// unusable returns the nodes on which a job could run, if none of them is usable; else "". Slurm lists several
// nodes in its own short form, which is not modelled.
func (c *Controller) unusable(p *Partition, j *job) string {
	var unusable []string
	for _, name := range p.Nodes {
		switch {
		case !j.allows(name):
		case c.node(name).usable():
			return ""
		default:
			unusable = append(unusable, name)
		}
	}
	return strings.Join(unusable, ",")
}

// blocked returns the reason of a job that waits for a change of the cluster, and not for other jobs.
func (c *Controller) blocked(p *Partition, j *job) string {
	switch {
	case p.State == "DOWN":
		return "PartitionDown"
	case p.MaxTime > 0 && j.limit > p.MaxTime:
		return "PartitionTimeLimit"
	case !slices.ContainsFunc(p.Nodes, func(name string) bool { n := c.node(name); return n != nil && n.CPUs >= j.CPUs }):
		return "PartitionConfig"
	}
	return ""
}

// findNode returns a node with room, and the GPUs for the job there.
func (c *Controller) findNode(p *Partition, j *job) (int, uint64) {
	for _, name := range p.Nodes {
		for i := range c.nodes {
			n := &c.nodes[i]
			if n.Name != name || !n.usable() || !j.allows(name) || !n.has(j.spec) ||
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

// earliestEnd returns the time at which the first job on a partition's nodes reaches its limit.
func (c *Controller) earliestEnd(p *Partition) time.Time {
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

func (c *Controller) launch(now time.Time, j *job, at int, gpus uint64) {
	n := &c.nodes[at]
	n.freeCPUs -= max(1, j.CPUs)
	n.freeMemory -= c.memoryOf(j.spec)
	n.busyGPUs |= gpus
	if j.reason != "None" {
		c.records[j.record].waitReason = j.reason
	}
	j.state, j.reason, j.start, j.expectedStart = sbatch.StateRunning, "None", now, time.Time{}
	j.node, j.nodeName, j.gpus, j.running, j.warned = at, n.Name, gpus, true, false
	r := &c.records[j.record]
	r.start, r.node = now, n.Name
	c.order(Start, j)
}
