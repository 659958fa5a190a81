package slurmtest

import (
	"cmp"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Database is the state of the accounting database.
type Database struct {
	// DownUntil is the time until which it does not answer.
	DownUntil time.Time
	// Behind is an additional delay of everything that it learns.
	Behind time.Duration
	// LosesEnds is set while the ends of jobs do not reach it: it shows those jobs as running forever.
	LosesEnds bool
}

// record is the accounting database's record of one instance of a job. The database shows it with a delay.
type record struct {
	*spec
	member // an older state of the controller's

	user       int
	submitted  time.Time
	eligible   time.Time // zero for never
	start, end time.Time
	state      sbatch.State // its last state
	exit       string       // as sacct prints it
	by         string       // the user who cancelled it
	node       string
	waitReason string // the last reason for its waiting
	suspended  bool
}

func (c *Controller) newRecord(j *job) int {
	r := record{spec: j.spec, member: j.member, user: j.user, submitted: j.submitted, waitReason: "None"}
	if !j.held {
		r.eligible = j.submitted
		if !j.begin.IsZero() {
			r.eligible = j.begin
		}
	}
	c.records = append(c.records, r)
	return len(c.records) - 1
}

func (c *Controller) recordEnd(j *job) {
	if c.Database.LosesEnds {
		return
	}
	r := &c.records[j.record]
	r.end, r.state, r.exit, r.by = j.end, j.state, cmp.Or(j.exit, sbatch.ExitedWell), j.by
	if r.start.IsZero() && j.state == sbatch.StateFailed {
		r.start = j.end // of a refused submission
	}
	if j.node == noNode && j.state == sbatch.StateCancelled {
		r.waitReason = j.reason
	}
}

// QueryAccounting returns the selected jobs of a user that the database knows, with all their instances,
// without those that had ended before since.
func (c *Controller) QueryAccounting(now time.Time, uid int, since time.Time, which sbatch.Which) ([]sbatch.Job, error) {
	c.advance(now)
	if now.Before(c.Database.DownUntil) {
		return nil, failed("account", databaseDown)
	}
	var jobs []sbatch.Job
	for i := range c.records {
		r := &c.records[i]
		if r.user != uid || !slices.Contains(which.Names, r.Name) && !slices.Contains(which.IDs, r.id()) && (r.array == 0 || !slices.Contains(which.IDs, r.array)) {
			continue
		}
		j, end, shown := c.shown(now, r)
		if !shown || !end.IsZero() && end.Before(since) {
			continue
		}
		for _, j.ID = range r.ids() {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

const databaseDown = "Problem talking to the database: Connection refused"

// shown returns a record as the database shows it, and the job's end. shown is false for a record without a
// name yet, which no question can match.
func (c *Controller) shown(now time.Time, r *record) (j sbatch.Job, end time.Time, shown bool) {
	known := now.Add(-c.Database.Behind) // the database knows the state at this time
	since := r.submitted
	if r.eligible.After(since) {
		since = r.eligible
	}
	ended := !r.end.IsZero()
	if r.eligible.IsZero() || known.Before(since.Add(c.site.NameAfter)) || ended && r.end.Before(r.eligible) {
		return sbatch.Job{}, time.Time{}, false
	}
	j = sbatch.Job{ID: r.id(), Name: r.Name, State: sbatch.StatePending, Reason: "None", Submitted: r.submitted.Truncate(time.Second)}
	if !r.start.IsZero() && !known.Before(r.start) {
		j.Start, j.Nodes, j.State = r.start.Truncate(time.Second), r.node, sbatch.StateRunning
		if r.suspended {
			j.State = sbatch.StateSuspended
		}
	}
	if ended && !known.Before(r.end.Add(c.site.EndAfter)) {
		end, j.State, j.Reason = r.end, r.state, r.waitReason
		if r.state != sbatch.StateCompleted {
			j.Exit = r.exit
		}
		if r.state == sbatch.StateCancelled {
			j.CancelledBy = r.by
		}
	}
	return j, end, true
}

// Associations returns the accounts of a user: none for a user that the database does not know.
func (c *Controller) Associations(now time.Time, user string) ([]sbatch.Association, error) {
	if now.Before(c.Database.DownUntil) {
		return nil, failed("list accounts of "+user, "Sending PersistInit msg: Connection refused")
	}
	var all []sbatch.Association
	for _, u := range c.site.Users {
		if u.Name != user {
			continue
		}
		for i, account := range u.Accounts {
			all = append(all, sbatch.Association{Account: account, Default: i == 0, QOS: slices.Clone(u.QOS)})
		}
	}
	return all, nil
}
