package slurmtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// refuse is the end of an sbatch whose submission failed, with what it said
// before the answer.
func refuse(answer string, before ...string) error {
	lines := make([]string, 0, len(before)+1)
	for _, b := range before {
		lines = append(lines, "sbatch: error: "+b)
	}
	return &failure{exit: 1, stderr: append(lines, "sbatch: error: Batch job submission failed: "+answer)}
}

const (
	tooLong = "Pathname of a file, directory or other parameter too long"
	noFit   = "Requested node configuration is not available"
	policy  = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
)

// Slurm src/slurmctld/job_mgr.c: _test_job_desc_fields; slurm.conf(5):
// max_script_size.
const (
	maxString = 1024
	maxScript = 4 << 20
)

// checkScript is what sbatch says of a script before it asks anybody.
func checkScript(script string) error {
	switch {
	case script == "":
		return fail(1, "sbatch: error: Batch script is empty!")
	case strings.Trim(script, " \t\n\v\f\r") == "":
		return fail(1, "sbatch: error: Batch script contains only whitespace!")
	case !strings.HasPrefix(script, "#!"):
		return fail(1, "sbatch: error: This does not look like a batch script.  The first",
			"sbatch: error: line must start with #! followed by the path to an interpreter.",
			"sbatch: error: For instance: #!/bin/sh")
	case strings.Contains(script, "\r\n"):
		return fail(1, `sbatch: error: Batch script contains DOS line breaks (\r\n)`, `sbatch: error: instead of expected UNIX line breaks (\n).`)
	}
	return nil
}

// submit makes a job's record, or says why not: the record that some refused
// submissions leave is made too.
func (c *Controller) submit(now time.Time, uid int, s *spec) (sbatch.JobID, error) {
	if s.gresOdd {
		return 0, fail(1, "sbatch: error: Invalid generic resource (gres) specification")
	}
	if c.stopped {
		return 0, refuse(away)
	}
	c.advance(now)
	p, err := c.admit(uid, s)
	if err != nil {
		return 0, err
	}
	ghost := c.unfit(p, s)
	id := c.next
	c.next++
	j := job{
		spec: s, id: id, user: uid, state: sbatch.StatePending, reason: "None", node: noNode,
		made: now, submitted: now, ready: now.Add(c.site.StartDelay), limit: s.Time,
	}
	if j.limit == 0 {
		j.limit = p.DefaultTime
	}
	if s.arraySpec {
		j.array, j.waiting = id, s.tasks
	}
	if s.hold {
		j.held, j.reason = true, "JobHeldUser"
	}
	if s.begin > 0 {
		j.begin, j.reason = now.Add(s.begin), "BeginTime"
	}
	if ghost != nil {
		j.state, j.reason, j.held, j.start, j.end, j.waiting = sbatch.StateFailed, "BadConstraints", false, now, now, nil
	}
	if c.jobs == nil { // few are the most usual
		c.jobs, c.rows = make([]job, 0, 8), make([]row, 0, 8)
	}
	j.row = c.newRow(&j)
	c.jobs = append(c.jobs, j)
	c.dirty = true
	if ghost != nil {
		c.recordEnd(&c.jobs[len(c.jobs)-1])
		return 0, ghost
	}
	return id, nil
}

// tryOnly answers sbatch --test-only: standard error says when the job would start, or
// why it is refused. It uses up an id, and leaves no record.
func (c *Controller) tryOnly(now time.Time, from call, s *spec) error {
	err := c.wouldRefuse(now, from.UID, s)
	if err == nil {
		p := c.partition(s.Partition)
		at := slices.IndexFunc(p.Nodes, func(name string) bool { return c.node(name).has(s) })
		return fail(0, fmt.Sprintf("sbatch: Job %d to start at %s using %d processors on nodes %s in partition %s",
			c.next-1, from.clock(now, ""), max(1, s.CPUs), p.Nodes[at], p.Name))
	}
	if f, ok := err.(*failure); ok { //nolint:errorlint // made by refuse
		last := len(f.stderr) - 1
		f.stderr[last] = strings.Replace(f.stderr[last], "sbatch: error: Batch job submission failed: ", "allocation failure: ", 1)
	}
	return err
}

// wouldRefuse returns why a submission is refused, or nil.
func (c *Controller) wouldRefuse(now time.Time, uid int, s *spec) error {
	if s.gresOdd {
		return fail(1, "sbatch: error: Invalid generic resource (gres) specification")
	}
	if c.stopped {
		return refuse(away)
	}
	c.advance(now)
	p, err := c.admit(uid, s)
	if err != nil {
		return err
	}
	c.next++
	return c.unfit(p, s)
}

// admit fills in what was not asked for, and says what is refused without
// leaving a trace (Slurm src/slurmctld/job_mgr.c: _job_create).
func (c *Controller) admit(uid int, s *spec) (*Partition, error) {
	if len(s.Name) > maxString || len(s.Comment) > maxString || len(s.Script) > maxScript {
		return nil, refuse(tooLong)
	}
	if s.Nice < 0 && uid != 0 {
		return nil, refuse("Invalid --nice value")
	}
	p, err := c.partitionOf(s)
	if err != nil {
		return nil, err
	}
	if err := c.associate(uid, s); err != nil {
		return nil, err
	}
	switch {
	case s.arraySpec && (len(s.tasks) == 0 || s.tasks[len(s.tasks)-1] >= c.site.MaxArraySize):
		return nil, refuse("Invalid job array specification")
	case s.licenses != "":
		return nil, refuse("Invalid license specification")
	case s.Reservation != "":
		return nil, refuse("Requested reservation is invalid")
	case s.nodeList != "" && !slices.ContainsFunc(c.nodes, func(n node) bool { return n.Name == s.nodeList }):
		return nil, refuse("Invalid node name specified")
	case !c.knowsFeatures(s.Constraint):
		return nil, refuse("Invalid feature specification")
	case s.timeMin > 0 && s.Time > 0 && s.timeMin > s.Time:
		return nil, refuse("Invalid time-min specification (exceeds job's time or other limits)")
	}
	return p, c.withinLimits(uid, s)
}

func (c *Controller) partitionOf(s *spec) (*Partition, error) {
	i := slices.IndexFunc(c.partitions, func(p Partition) bool {
		return p.Name == s.Partition || s.Partition == "" && p.Default
	})
	switch {
	case i < 0 && strings.Contains(s.Partition, ","):
		return nil, &UnmodelledError{What: "a job for several partitions"}
	case i < 0 && s.Partition == "":
		return nil, refuse("No partition specified or system default partition")
	case i < 0:
		return nil, refuse("Invalid partition name specified", "invalid partition specified: "+s.Partition)
	}
	p := &c.partitions[i]
	if p.State == "DRAIN" || p.State == "INACTIVE" {
		return nil, refuse("Required partition not available (inactive or drain)")
	}
	s.Partition = p.Name
	return p, nil
}

func (c *Controller) associate(uid int, s *spec) error {
	u := c.site.user(uid)
	switch {
	case u == nil || s.Account != "" && !slices.Contains(u.Accounts, s.Account):
		return refuse("Invalid account or account/partition combination specified")
	case s.QOS != "" && !slices.Contains(u.QOS, s.QOS):
		return refuse("Invalid qos specification")
	case s.WCKey != "" && !slices.Contains(u.WCKeys, s.WCKey):
		return refuse("Invalid wckey specification")
	}
	if s.Account == "" {
		s.Account = u.Accounts[0]
	}
	if s.QOS == "" {
		s.QOS = u.QOS[0]
	}
	if s.WCKey == "" {
		s.WCKey = "*" + u.WCKeys[0]
	}
	return nil
}

// withinLimits counts a user's jobs in a QOS.
func (c *Controller) withinLimits(uid int, s *spec) error {
	q := c.site.qos(s.QOS)
	if q == nil || q.MaxSubmitJobs == 0 {
		return nil
	}
	n := max(1, len(s.tasks))
	for i := range c.jobs {
		if j := &c.jobs[i]; j.user == uid && j.QOS == s.QOS && !j.state.Ended() {
			n += max(1, len(j.waiting))
		}
	}
	if n > q.MaxSubmitJobs {
		return refuse(policy, "QOSMaxSubmitJobPerUserLimit")
	}
	return nil
}

// unfit says why no node of the partition will ever do. The job's record is
// made nevertheless, and shown as a job that FAILED.
func (c *Controller) unfit(p *Partition, s *spec) error {
	if s.nodes == noNodes {
		return refuse("Node count specification invalid")
	}
	memory := false
	for _, name := range p.Nodes {
		n := c.node(name)
		if n == nil {
			continue
		}
		if c.memoryOf(s) <= n.MemoryMiB {
			memory = true
		}
		if c.memoryOf(s) <= n.MemoryMiB && n.has(s) && (s.nodeList == "" || s.nodeList == name) {
			return nil
		}
	}
	if !memory {
		return refuse(noFit, "Memory specification can not be satisfied")
	}
	return refuse(noFit)
}

func (c *Controller) memoryOf(s *spec) int64 {
	if s.MemoryMiB > 0 {
		return s.MemoryMiB
	}
	return c.site.MemoryPerCPU * max(1, s.CPUs)
}

func (c *Controller) knowsFeatures(constraint string) bool {
	if constraint == "" {
		return true
	}
	for f := range strings.FieldsFuncSeq(constraint, func(r rune) bool { return r == '&' || r == '|' }) {
		if !slices.ContainsFunc(c.nodes, func(n node) bool { return slices.Contains(n.Features, f) }) {
			return false
		}
	}
	return true
}

// has says whether a node has the resources and features of a submission, busy
// or not; CPUs are not among them: a job that wants too many waits for ever.
func (n *node) has(s *spec) bool {
	if s.GPUs > int64(n.GPUs) || s.GPUType != "" && s.GPUs > 0 && s.GPUType != n.GPUType {
		return false
	}
	if s.Constraint == "" {
		return true
	}
	for all := range strings.SplitSeq(s.Constraint, "|") {
		lacks := false
		for f := range strings.SplitSeq(all, "&") {
			lacks = lacks || !slices.Contains(n.Features, f)
		}
		if !lacks {
			return true
		}
	}
	return false
}
