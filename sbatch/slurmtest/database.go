package slurmtest

import (
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Database is how the accounting database fares.
type Database struct {
	// AwayUntil is until when it gives no answer.
	AwayUntil time.Time
	// Behind is by how much more than usual it is behind the controller.
	Behind time.Duration
	// LosesEnds is set while the ends of jobs do not reach it: it shows those
	// jobs as running for ever.
	LosesEnds bool
}

// row is what the database is told of one instance of a job. It shows it by
// and by.
type row struct {
	*spec
	id          sbatch.JobID
	array       sbatch.JobID
	task        int
	waiting     []int
	user        int
	submitted   time.Time
	eligible    time.Time // zero for never
	start, end  time.Time
	state       sbatch.State // that it ended in
	node        string
	waited      string // the reason for which it waited last
	exit        End
	cancelledBy int
}

func (c *Controller) newRow(j *job) int {
	r := row{spec: j.spec, id: j.id, array: j.array, task: j.task, waiting: j.waiting, user: j.user, submitted: j.submitted, waited: "None"}
	if !j.held {
		r.eligible = j.submitted
		if !j.begin.IsZero() {
			r.eligible = j.begin
		}
	}
	c.rows = append(c.rows, r)
	return len(c.rows) - 1
}

func (c *Controller) recordEnd(j *job) {
	if c.Database.LosesEnds {
		return
	}
	r := &c.rows[j.row]
	r.end, r.state = j.end, j.state
	if r.start.IsZero() && j.state == sbatch.StateFailed {
		r.start = j.end // of a refused submission
	}
	if j.node == noNode && j.state == sbatch.StateCancelled {
		r.waited = j.reason
	}
}

// Account returns the jobs of these names of a user that the database knows,
// with all their instances, among those that had not ended before a time.
func (c *Controller) Account(now time.Time, uid int, since time.Time, names []string) ([]sbatch.Job, error) {
	c.advance(now)
	if now.Before(c.Database.AwayUntil) {
		return nil, unanswered("account", databaseAway)
	}
	var jobs []sbatch.Job
	for i := range c.rows {
		r := &c.rows[i]
		if r.user != uid || !slices.Contains(names, r.Name) {
			continue
		}
		v, shown := c.shown(now, r)
		if !shown || !v.named || !v.end.IsZero() && v.end.Before(since) {
			continue
		}
		start := v.start.Truncate(time.Second)
		jobs = append(jobs, sbatch.Job{ID: r.id, Name: r.Name, State: v.state, Reason: v.reason, Nodes: v.node, Start: start})
	}
	return jobs, nil
}

const databaseAway = "sacct: error: Problem talking to the database: Connection refused"

// account is what the database shows of a row.
type account struct {
	named      bool // else its name is still the placeholder
	state      sbatch.State
	start, end time.Time
	node       string
	reason     string
}

// shown is what the database shows of a row at a time, if anything.
func (c *Controller) shown(now time.Time, r *row) (account, bool) {
	seen := now.Add(-c.Database.Behind)
	since := r.submitted
	if r.eligible.After(since) {
		since = r.eligible
	}
	if r.eligible.IsZero() || seen.Before(since.Add(c.site.RowAfter)) || r.ended() && r.end.Before(r.eligible) {
		return account{}, false
	}
	a := account{named: !seen.Before(since.Add(c.site.NameAfter)), state: sbatch.StatePending, reason: "None"}
	if !r.start.IsZero() && !seen.Before(r.start) {
		a.start, a.node = r.start, r.node
		if a.named {
			a.state = sbatch.StateRunning
		}
	}
	if r.ended() && !seen.Before(r.end.Add(c.site.EndAfter)) {
		a.state, a.end, a.reason = r.state, r.end, r.waited
	}
	return a, true
}

func (r *row) ended() bool { return !r.end.IsZero() }
