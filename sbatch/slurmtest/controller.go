package slurmtest

import (
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Controller is the memory of slurmctld and slurmdbd. It is not safe for
// concurrent use.
//
// Each of its methods takes the time of the call, which never goes back. What
// is due by then is done first, whether or not [Controller.Advance] was called
// meanwhile; only orders for the nodes wait to be fetched by it. A driver
// therefore goes round so: do something, Advance, carry out the orders, and
// nothing more is to be done before [Controller.Due].
//
// Errors are *[sbatch.Error], such as an [sbatch.Client] returns, or
// *[UnmodelledError].
type Controller struct {
	// Database is how the accounting database fares. It may be changed at any
	// time.
	Database Database

	site       *Site
	partitions []Partition
	nodes      []node
	jobs       []job // by id
	rows       []row
	next       sbatch.JobID
	orders     []Order
	orphans    []Launch // that run on nodes which are down
	stopped    bool
	unheard    []unheard
	scratch    []int
	due        time.Time // zero for never
	dirty      bool
}

// job is a job's record, or that of all tasks of an array that wait.
type job struct {
	*spec
	id      sbatch.JobID
	array   sbatch.JobID // the array's id, 0 for none
	task    int          // of an array
	waiting []int        // the tasks of an array that this record stands for
	user    int
	// state is the one without COMPLETING: while completing is set, it is
	// shown only afterwards.
	state      sbatch.State
	completing bool
	again      bool // is requeued when it has completed
	held       bool
	reason     string
	made       time.Time // its first submission
	submitted  time.Time
	ready      time.Time // the scheduler's pass after it was submitted
	begin      time.Time // is not eligible before; zero is at once
	expected   time.Time
	start, end time.Time
	limit      time.Duration
	warned     bool

	node     int // index, noNode when it has none
	nodeName string
	gpus     uint64
	running  bool // its processes are there
	restarts int
	killAt   time.Time // when KILL follows TERM
	cleared  time.Time // when its epilog has ended
	row      int
}

const noNode = -1

// New returns the controller of a cluster on which nothing was ever submitted.
func New(site *Site) *Controller {
	c := &Controller{site: site, partitions: site.Partitions, next: site.FirstJob, nodes: make([]node, len(site.Nodes))}
	for i := range site.Nodes {
		c.nodes[i] = node{Node: &site.Nodes[i], freeCPUs: site.Nodes[i].CPUs, freeMemory: site.Nodes[i].MemoryMiB}
	}
	return c
}

// Submit submits a job, as sbatch does for a user with this number.
func (c *Controller) Submit(now time.Time, uid int, r sbatch.Request) (sbatch.JobID, error) {
	s, err := specOf(r)
	if err == nil {
		err = checkScript(s.Script)
	}
	var id sbatch.JobID
	if err == nil {
		id, err = c.submit(now, uid, s)
	}
	if f, ok := err.(*failure); ok { //nolint:errorlint // made above
		return 0, sbatch.Judge(r.Name, f.text(), f.exit)
	}
	return id, err
}

// Observe returns the jobs of a user in the order of their ids.
func (c *Controller) Observe(now time.Time, uid int) (sbatch.Snapshot, error) {
	if c.stopped {
		return sbatch.Snapshot{}, unanswered("observe", "slurm_load_jobs error: "+away)
	}
	c.advance(now)
	s := sbatch.Snapshot{Asked: now, Jobs: make([]sbatch.Job, 0, len(c.jobs))}
	for i := range c.jobs {
		if j := &c.jobs[i]; j.user == uid {
			for range max(1, len(listed(j.waiting))) {
				s.Jobs = append(s.Jobs, j.view())
			}
		}
	}
	return s, nil
}

// Cancel cancels a user's job, if it still has this name; no name is any. It is
// no error when there is no such job, or not any more.
func (c *Controller) Cancel(now time.Time, uid int, id sbatch.JobID, name string) error {
	if c.stopped {
		return unanswered("cancel "+id.String(), "slurm_kill_job2() failed "+away)
	}
	c.advance(now)
	if f := c.cancel(now, uid, id, name); f != nil && f.stderr[0] != killError(id, invalidID) {
		return unanswered("cancel "+id.String(), f.stderr[0])
	}
	return nil
}

// What Slurm's commands say.
const (
	away      = "Unable to contact slurm controller (connect failure)"
	invalidID = "Invalid job id specified"
	denied    = "Access/permission denied"
)

func killError(id sbatch.JobID, why string) string {
	return "scancel: error: Kill job error on job id " + id.String() + ": " + why
}

// unanswered is the error of a command that was not a submission.
func unanswered(op, said string) error { return &sbatch.Error{Op: op, Message: said} }

// view is what squeue shows of a job.
func (j *job) view() sbatch.Job {
	v := sbatch.Job{ID: j.id, Name: j.Name, State: j.state, Reason: j.reason, Comment: j.Comment, Start: j.start}
	if j.completing {
		v.State = sbatch.StateCompleting
	}
	if j.node != noNode {
		v.Nodes = j.nodeName
	}
	if j.state == sbatch.StatePending && !j.completing {
		v.Start = j.expected
		if !j.begin.IsZero() {
			v.Start = j.begin
		}
	}
	v.Start = v.Start.Truncate(time.Second)
	return v
}

// listed are the tasks of an array that squeue --array lists. Of more than five
// that are evenly spaced with gaps, over a span of more than ten, it leaves out
// the last: they are written as 2-20:2, and it finds no index in the end of that
// (seen with Slurm 22.05.8).
func listed(tasks []int) []int {
	if last := len(tasks) - 1; stepped(tasks) {
		return tasks[:last]
	}
	return tasks
}

// stepped says whether Slurm writes tasks as 2-20:2.
func stepped(tasks []int) bool {
	last := len(tasks) - 1
	if last < 5 || tasks[last]-tasks[0] <= 10 || tasks[1]-tasks[0] == 1 {
		return false
	}
	for i := 2; i <= last; i++ {
		if tasks[i]-tasks[i-1] != tasks[1]-tasks[0] {
			return false
		}
	}
	return true
}

// find returns a job's record, nil when there is none.
func (c *Controller) find(id sbatch.JobID) *job {
	i, ok := slices.BinarySearchFunc(c.jobs, id, func(j job, id sbatch.JobID) int { return int(j.id - id) })
	if !ok {
		return nil
	}
	return &c.jobs[i]
}

// cancel ends a job, or all tasks of an array.
func (c *Controller) cancel(now time.Time, uid int, id sbatch.JobID, name string) *failure {
	exists, over := false, true
	for i := range c.jobs {
		j := &c.jobs[i]
		if j.id != id && j.array != id {
			continue
		}
		exists = true
		if j.state.Ended() {
			continue
		}
		over = false
		switch {
		case name != "" && j.Name != name:
		case uid != j.user && uid != 0:
			return &failure{exit: 210, stderr: []string{killError(id, denied)}}
		default:
			c.kill(now, j, uid)
		}
	}
	if !exists || over {
		return &failure{exit: 1, stderr: []string{killError(id, invalidID)}}
	}
	return nil
}

// kill ends a job that has not ended.
func (c *Controller) kill(now time.Time, j *job, by int) {
	c.rows[j.row].cancelledBy = by
	c.dirty = true
	switch {
	case j.again: // TERM was sent
		j.again, j.state = false, sbatch.StateCancelled
	case j.state == sbatch.StatePending:
		j.state, j.start, j.end, j.expected = sbatch.StateCancelled, now, now, time.Time{}
		c.recordEnd(j)
	default:
		c.terminate(now, j, sbatch.StateCancelled, "None")
	}
}

// terminate ends a running job: TERM now, KILL after KillWait.
func (c *Controller) terminate(now time.Time, j *job, state sbatch.State, reason string) {
	j.state, j.reason, j.end, j.completing = state, reason, now, true
	c.recordEnd(j)
	c.order(Terminate, j, 0)
	j.killAt = now.Add(c.site.KillWait)
	c.dirty = true
}
