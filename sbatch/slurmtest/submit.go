package slurmtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// SubmitError returns the error of a submission for which sbatch exited with this
// status, not 0, and this standard error.
func SubmitError(name, stderr string, exit int) *sbatch.Error {
	return sbatch.SubmissionError(name, &command.Error{
		ExitCode: exit, Stderr: strings.TrimSpace(stderr), Err: fmt.Errorf("exit status %d", exit),
	})
}

// refuse is the error of a submission that the controller refuses. sbatch prints
// the lines of before first.
func (s *spec) refuse(answer string, before ...string) error {
	return s.object(append(before, "Batch job submission failed: "+answer)...)
}

// object is the error of a submission that sbatch refuses with these lines.
func (s *spec) object(lines ...string) error {
	return SubmitError(s.Name, "sbatch: error: "+strings.Join(lines, "\nsbatch: error: "), 1)
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

// Submit submits a job, as sbatch does for a user with this number. Some refused
// submissions leave a record, as those of slurmctld do.
func (c *Controller) Submit(now time.Time, uid int, r sbatch.Request) (sbatch.JobID, error) {
	s, p, err := c.admit(now, uid, r)
	if err != nil {
		return 0, err
	}
	unfit := c.unfit(p, s)
	j := job{
		spec: s, id: c.nextID, user: uid, state: sbatch.StatePending, reason: "None", node: noNode,
		submitted: now, schedulable: now.Add(c.site.StartDelay), limit: s.Time,
	}
	c.nextID++
	if j.limit == 0 {
		j.limit = p.DefaultTime
	}
	if s.hold {
		j.held, j.reason = true, "JobHeldUser"
	}
	if unfit != nil {
		j.state, j.reason, j.held, j.start, j.end = sbatch.StateFailed, "BadConstraints", false, now, now
	}
	if c.jobs == nil { // most controllers have few
		c.jobs, c.records = make([]job, 0, 8), make([]record, 0, 8)
	}
	j.record = c.newRecord(&j)
	c.jobs = append(c.jobs, j)
	c.dirty = true
	if unfit != nil {
		c.recordEnd(&c.jobs[len(c.jobs)-1])
		return 0, unfit
	}
	return j.id, nil
}

// Try returns the refusal that a submission would get, as sbatch --test-only. It uses up
// an id, and leaves no record.
func (c *Controller) Try(now time.Time, uid int, r sbatch.Request) error {
	s, p, err := c.admit(now, uid, r)
	if err != nil {
		return err
	}
	c.nextID++
	return c.unfit(p, s)
}

// admit fills in what was not asked for, and refuses what slurmctld refuses
// without leaving a record (Slurm src/slurmctld/job_mgr.c: _job_create).
func (c *Controller) admit(now time.Time, uid int, r sbatch.Request) (*spec, *Partition, error) {
	s := specOf(r)
	if err := s.checkScript(); err != nil {
		return nil, nil, err
	}
	if c.stopped {
		return nil, nil, s.refuse(unreachable)
	}
	c.advance(now)
	if len(s.Name) > maxString || len(s.Comment) > maxString || len(s.Script) > maxScript {
		return nil, nil, s.refuse(tooLong)
	}
	p, err := c.partitionOf(s)
	if err != nil {
		return nil, nil, err
	}
	if err := c.associate(uid, s); err != nil {
		return nil, nil, err
	}
	switch {
	case s.Reservation != "":
		return nil, nil, s.refuse("Requested reservation is invalid")
	case s.nodeList != "" && c.node(s.nodeList) == nil:
		return nil, nil, s.refuse("Invalid node name specified")
	case s.Exclude != "" && slices.ContainsFunc(strings.Split(s.Exclude, ","), func(name string) bool { return c.node(name) == nil }):
		return nil, nil, s.refuse("Invalid node name specified")
	case s.Constraint != "": // no node has features
		return nil, nil, s.refuse("Invalid feature specification")
	}
	return s, p, c.withinLimits(uid, s)
}

// checkScript makes some of the checks of sbatch itself.
func (s *spec) checkScript() error {
	switch {
	case s.Script == "":
		return s.object("Batch script is empty!")
	case strings.Contains(s.Script, "\r\n"):
		return s.object(`Batch script contains DOS line breaks (\r\n)`, `instead of expected UNIX line breaks (\n).`)
	}
	return nil
}

func (c *Controller) partitionOf(s *spec) (*Partition, error) {
	i := slices.IndexFunc(c.partitions, func(p Partition) bool {
		return p.Name == s.Partition || s.Partition == "" && p.Default
	})
	if i < 0 {
		return nil, s.refuse("Invalid partition name specified", "invalid partition specified: "+s.Partition)
	}
	p := &c.partitions[i]
	s.Partition = p.Name
	return p, nil
}

func (c *Controller) associate(uid int, s *spec) error {
	u := c.site.user(uid)
	switch {
	case u == nil || s.Account != "" && !slices.Contains(u.Accounts, s.Account):
		return s.refuse("Invalid account or account/partition combination specified")
	case s.QOS != "" && !slices.Contains(u.QOS, s.QOS):
		return s.refuse("Invalid qos specification")
	case s.WCKey != "" && !slices.Contains(u.WCKeys, s.WCKey):
		return s.refuse("Invalid wckey specification")
	}
	if s.Account == "" {
		s.Account = u.Accounts[0]
	}
	if s.QOS == "" {
		s.QOS = u.QOS[0]
	}
	return nil
}

// withinLimits counts a user's jobs in a QOS.
func (c *Controller) withinLimits(uid int, s *spec) error {
	q := c.site.qos(s.QOS)
	if q == nil || q.MaxSubmitJobs == 0 {
		return nil
	}
	n := 1
	for i := range c.jobs {
		if j := &c.jobs[i]; j.user == uid && j.QOS == s.QOS && !j.state.Ended() {
			n++
		}
	}
	if n > q.MaxSubmitJobs {
		return s.refuse(policy, "QOSMaxSubmitJobPerUserLimit")
	}
	return nil
}

// unfit returns why no node of the partition will ever do. The job's record is
// made nevertheless, and shown as a job that FAILED.
func (c *Controller) unfit(p *Partition, s *spec) error {
	memory, cpus := false, false
	for _, name := range p.Nodes {
		n := c.node(name)
		if n == nil || c.memoryOf(s) > n.MemoryMiB {
			continue
		}
		memory = true
		if c.site.Slurm.refusesCPUs() && s.CPUs > n.CPUs {
			continue
		}
		cpus = true
		if n.has(s) && s.allows(name) {
			return nil
		}
	}
	switch {
	case !memory:
		return s.refuse(noFit, "Memory specification can not be satisfied")
	case !cpus:
		return s.refuse(noFit, "CPU count per node can not be satisfied")
	}
	return s.refuse(noFit)
}

func (c *Controller) memoryOf(s *spec) int64 {
	if s.MemoryMiB > 0 {
		return s.MemoryMiB
	}
	return c.site.MemoryPerCPU * max(1, s.CPUs)
}

// has reports whether a node has the resources of a submission, busy or not. CPUs are not among
// them: a job that wants too many waits for ever.
func (n *node) has(s *spec) bool {
	return s.GPUs <= int64(n.GPUs) && (s.GPUType == "" || s.GPUs == 0 || s.GPUType == n.GPUType)
}
