package slurmtest

import (
	"strconv"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Controller is the state of slurmctld and slurmdbd. It is not safe for
// concurrent use.
//
// Each method takes the time of the call, which must never go back. The method first does everything that
// is due at that time, but keeps the orders for the nodes until [Controller.Advance]. So a driver calls a
// method, calls Advance, carries out the orders, and has nothing to do until [Controller.Due].
//
// Errors are *[sbatch.Error], like those of an [sbatch.Client].
type Controller struct {
	// Database is the state of the accounting database. The caller may change it at any time.
	Database Database

	site       *Site
	partitions []Partition
	nodes      []node
	jobs       []job                         // sorted by number
	tasks      map[sbatch.JobID]sbatch.JobID // the numbers of tasks that have their own record
	records    []record
	nextID     sbatch.JobID
	orders     []Order
	orphans    []Launch                   // running on nodes that are down
	requeued   map[sbatch.JobID]time.Time // the last time
	stopped    bool
	missed     []missedEnd
	pending    []int // scratch space of schedule
	due        time.Time
	dirty      bool
}

// job is slurmctld's record of a job.
type job struct {
	*spec
	member

	user int
	// state is never COMPLETING: while completing is set, Slurm shows COMPLETING, and state is the next
	// state.
	state         sbatch.State
	completing    bool
	requeuing     bool // becomes pending again after it has completed
	holding       bool // is held then
	held          bool
	reason        string
	exit          string // as sacct prints it; empty while it runs
	by            string // the id of the user who cancelled it
	submitted     time.Time
	schedulable   time.Time // the time from which the scheduler considers it
	begin         time.Time // the time from which it is eligible; zero for at once
	expectedStart time.Time
	start, end    time.Time
	limit         time.Duration
	suspendedAt   time.Time     // the start of the present suspension; zero for none
	suspended     time.Duration // the sum of the earlier suspensions

	node     int // index, noNode without one
	nodeName string
	gpus     uint64
	running  bool // its processes exist
	restarts int
	warned   bool      // it got the TERM of --signal
	killAt   time.Time // the time of KILL after TERM
	cleared  time.Time // the end of its epilog
	record   int       // index
}

const noNode = -1

// New returns the controller of a new cluster, without jobs.
func New(site *Site) *Controller {
	c := &Controller{site: site, partitions: site.Partitions, nextID: site.FirstJob, requeued: map[sbatch.JobID]time.Time{}, nodes: make([]node, len(site.Nodes))}
	for i := range site.Nodes {
		c.nodes[i] = node{Node: &site.Nodes[i], freeCPUs: site.Nodes[i].CPUs, freeMemory: site.Nodes[i].MemoryMiB}
	}
	return c
}

// Observe returns the jobs of a user in the order of their ids.
func (c *Controller) Observe(now time.Time, uid int) (sbatch.Snapshot, error) {
	if c.stopped {
		return sbatch.Snapshot{}, failed("observe", "slurm_load_jobs error: "+unreachable)
	}
	c.advance(now)
	s := sbatch.Snapshot{Asked: now, Jobs: make([]sbatch.Job, 0, len(c.jobs))}
	for i := range c.jobs {
		j := &c.jobs[i]
		if j.user != uid {
			continue
		}
		shown := j.view()
		if !j.shared {
			s.Jobs = append(s.Jobs, shown)
			continue
		}
		for _, shown.ID = range j.ids() {
			s.Jobs = append(s.Jobs, shown)
		}
	}
	return s, nil
}

// Describe returns the details of a job that has not been purged.
func (c *Controller) Describe(now time.Time, id sbatch.JobID) (sbatch.Details, error) {
	op := "describe " + id.String()
	if c.stopped {
		return sbatch.Details{}, failed(op, "slurm_load_jobs error: "+unreachable)
	}
	c.advance(now)
	j := c.jobByID(id)
	if j == nil {
		return sbatch.Details{}, failed(op, "slurm_load_jobs error: "+invalidID)
	}
	return sbatch.Details{
		Name: j.Name, Comment: j.Comment, Submitted: j.submitted.Truncate(time.Second),
		Partition: j.Partition, Account: j.Account, QOS: j.QOS,
		Time: j.shownLimit(),
	}, nil
}

// shownLimit returns the time limit as Slurm shows it: it has only whole minutes.
func (j *job) shownLimit() time.Duration {
	return (j.limit + time.Minute - 1).Truncate(time.Minute)
}

// Messages of Slurm's commands.
const (
	unreachable = "Unable to contact slurm controller (connect failure)"
	invalidID   = "Invalid job id specified"
	denied      = "Access/permission denied"
)

// failed returns the error of a request that is not a submission.
func failed(op, message string) error { return &sbatch.Error{Op: op, Message: message} }

// view returns the job as squeue shows it.
func (j *job) view() sbatch.Job {
	v := sbatch.Job{
		ID: j.id(), Name: j.Name, State: j.state, Reason: j.reason, Comment: j.Comment,
		Start: j.start, Submitted: j.submitted.Truncate(time.Second), TimeLimit: j.shownLimit(),
	}
	if j.completing {
		v.State = sbatch.StateCompleting
	}
	if j.node != noNode {
		v.Nodes = j.nodeName
	}
	if j.state == sbatch.StatePending && !j.completing {
		v.Start = j.expectedStart
		if !j.begin.IsZero() {
			v.Start = j.begin
		}
	}
	v.Start = v.Start.Truncate(time.Second)
	if v.State == sbatch.StateCompleted {
		v.Exit = sbatch.ExitedWell
	}
	return v
}

// Cancel cancels a user's job, a task or a whole array if it has this name; an empty name fits any. It is no error if the
// job does not exist, or has ended.
func (c *Controller) Cancel(now time.Time, uid int, id sbatch.JobID, name string) error {
	op := "cancel " + id.String()
	if c.stopped {
		return failed(op, "slurm_kill_job2() failed "+unreachable)
	}
	c.advance(now)
	for _, number := range c.jobsOf(id) {
		j := &c.jobs[c.numbered(number)]
		switch {
		case j.state.Ended() || name != "" && j.Name != name:
			continue
		case uid != j.user && uid != 0:
			return failed(op, "Kill job error on job id "+id.String()+": "+denied)
		}
		_, task, isTask := id.ArrayTask()
		switch {
		case !j.shared:
		case isTask && j.cancelTask(task):
			continue
		case name != "":
			j.waiting = nil // with a name, scancel cancels them as tasks
		}
		c.cancel(now, uid, j)
	}
	return nil
}

// cancel cancels a job that has not ended.
func (c *Controller) cancel(now time.Time, uid int, j *job) {
	c.dirty = true
	j.by = strconv.Itoa(uid)
	switch {
	case j.requeuing: // TERM was sent
		j.requeuing, j.state = false, sbatch.StateCancelled
	case j.state == sbatch.StatePending:
		j.state, j.start, j.end, j.expectedStart = sbatch.StateCancelled, now, now, time.Time{}
		c.recordEnd(j)
	default:
		c.terminate(now, j, sbatch.StateCancelled, "None")
	}
}

// terminate ends a running job: TERM now, KILL after KillWait. A suspended job gets KILL at once, and its
// end is the time of its suspension.
func (c *Controller) terminate(now time.Time, j *job, state sbatch.State, reason string) {
	suspended := j.state == sbatch.StateSuspended
	j.state, j.reason, j.end, j.completing = state, reason, j.endBy(now), true
	c.recordEnd(j)
	c.dirty = true
	if suspended {
		c.order(Kill, j)
		return
	}
	c.order(Terminate, j)
	j.killAt = now.Add(c.site.KillWait)
}

// onNode reports whether a job's processes run, or are suspended.
func (j *job) onNode() bool {
	return j.state == sbatch.StateRunning || j.state == sbatch.StateSuspended
}

// endBy returns the end of a job that ends now.
func (j *job) endBy(now time.Time) time.Time {
	if j.state == sbatch.StateSuspended {
		return j.suspendedAt
	}
	return now
}
