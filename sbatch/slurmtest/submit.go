package slurmtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// SubmitError returns the error of a submission for which sbatch exited with this status, not 0, and this
// standard error.
func SubmitError(name, stderr string, exit int) *sbatch.Error {
	return sbatch.SubmissionError(name, &command.Error{
		ExitCode: exit, Stderr: strings.TrimSpace(stderr), Err: fmt.Errorf("exit status %d", exit),
	})
}

// controllerError returns the error of a submission that the controller refuses. sbatch prints the lines of before
// first.
func (s *spec) controllerError(answer string, before ...string) error {
	return s.sbatchError(append(before, "Batch job submission failed: "+answer)...)
}

// sbatchError returns the error of a submission that sbatch refuses with these lines.
func (s *spec) sbatchError(lines ...string) error {
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

// Submit submits a job, like sbatch for the user with this number. Some refused submissions leave a record,
// as in slurmctld.
func (c *Controller) Submit(now time.Time, uid int, r sbatch.Request) (sbatch.JobID, error) {
	s, p, err := c.admit(now, uid, r)
	if err != nil {
		return 0, err
	}
	unfit := c.unfit(p, s)
	j := job{
		spec: s, member: newMember(c.nextID, s.Tasks), user: uid, state: sbatch.StatePending, reason: "None", node: noNode,
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
	return j.id(), nil
}

// newMember returns the place of a new record.
func newMember(number sbatch.JobID, tasks int) member {
	if tasks <= 0 {
		return member{number: number}
	}
	m := member{number: number, array: number, shared: true, waiting: make([]int, tasks)}
	for i := range m.waiting {
		m.waiting[i] = i
	}
	return m
}

// Try returns the refusal that a submission would get, like sbatch --test-only. It uses up an id, and leaves
// no record.
func (c *Controller) Try(now time.Time, uid int, r sbatch.Request) error {
	s, p, err := c.admit(now, uid, r)
	if err != nil {
		return err
	}
	c.nextID++
	return c.unfit(p, s)
}

// admit fills in defaults, and refuses the submissions that slurmctld refuses without leaving a record (Slurm
// src/slurmctld/job_mgr.c: _job_create).
func (c *Controller) admit(now time.Time, uid int, r sbatch.Request) (*spec, *Partition, error) {
	s := specOf(r)
	if err := s.checkScript(); err != nil {
		return nil, nil, err
	}
	if c.stopped {
		return nil, nil, s.controllerError(unreachable)
	}
	c.advance(now)
	if len(s.Name) > maxString || len(s.Comment) > maxString || len(s.Script) > maxScript {
		return nil, nil, s.controllerError(tooLong)
	}
	if s.Tasks > c.site.MaxArraySize {
		return nil, nil, s.controllerError("Invalid job array specification")
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
		return nil, nil, s.controllerError("Requested reservation is invalid")
	case s.nodeList != "" && c.node(s.nodeList) == nil:
		return nil, nil, s.controllerError("Invalid node name specified")
	case s.Exclude != "" && slices.ContainsFunc(strings.Split(s.Exclude, ","), func(name string) bool { return c.node(name) == nil }):
		return nil, nil, s.controllerError("Invalid node name specified")
	case s.Constraint != "": // no node has features
		return nil, nil, s.controllerError("Invalid feature specification")
	}
	return s, p, c.withinLimits(uid, s)
}

// checkScript makes some of sbatch's own checks.
func (s *spec) checkScript() error {
	switch {
	case s.Script == "":
		return s.sbatchError("Batch script is empty!")
	case strings.Contains(s.Script, "\r\n"):
		return s.sbatchError(`Batch script contains DOS line breaks (\r\n)`, `instead of expected UNIX line breaks (\n).`)
	}
	return nil
}

func (c *Controller) partitionOf(s *spec) (*Partition, error) {
	i := slices.IndexFunc(c.partitions, func(p Partition) bool {
		return p.Name == s.Partition || s.Partition == "" && p.Default
	})
	if i < 0 {
		return nil, s.controllerError("Invalid partition name specified", "invalid partition specified: "+s.Partition)
	}
	p := &c.partitions[i]
	s.Partition = p.Name
	return p, nil
}

func (c *Controller) associate(uid int, s *spec) error {
	u := c.site.user(uid)
	switch {
	case u == nil || s.Account != "" && !slices.Contains(u.Accounts, s.Account):
		return s.controllerError("Invalid account or account/partition combination specified")
	case s.QOS != "" && !slices.Contains(u.QOS, s.QOS):
		return s.controllerError("Invalid qos specification")
	case s.WCKey != "" && !slices.Contains(u.WCKeys, s.WCKey):
		return s.controllerError("Invalid wckey specification")
	}
	if s.Account == "" {
		s.Account = u.Accounts[0]
	}
	if s.QOS == "" {
		s.QOS = u.QOS[0]
	}
	return nil
}

// withinLimits returns the refusal of a submission that exceeds the user's jobs in a QOS; nil if it does not.
func (c *Controller) withinLimits(uid int, s *spec) error {
	q := c.site.qos(s.QOS)
	if q == nil || q.MaxSubmitJobs == 0 {
		return nil
	}
	n := max(1, s.Tasks)
	for i := range c.jobs {
		if j := &c.jobs[i]; j.user == uid && j.QOS == s.QOS && !j.state.Ended() {
			n += j.size()
		}
	}
	if n > q.MaxSubmitJobs {
		return s.controllerError(policy, "QOSMaxSubmitJobPerUserLimit")
	}
	return nil
}

// unfit returns the refusal if no node of the partition will ever fit the job; nil if one will. slurmctld still
// makes a record of the job, which is shown as FAILED.
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
		return s.controllerError(noFit, "Memory specification can not be satisfied")
	case !cpus:
		return s.controllerError(noFit, "CPU count per node can not be satisfied")
	}
	return s.controllerError(noFit)
}

func (c *Controller) memoryOf(s *spec) int64 {
	if s.MemoryMiB > 0 {
		return s.MemoryMiB
	}
	return c.site.MemoryPerCPU * max(1, s.CPUs)
}

// has reports whether a node has the resources of a submission, busy or not. It ignores CPUs, because a job
// that requests too many waits forever.
func (n *node) has(s *spec) bool {
	return s.GPUs <= int64(n.GPUs) && (s.GPUType == "" || s.GPUs == 0 || s.GPUType == n.GPUType)
}
