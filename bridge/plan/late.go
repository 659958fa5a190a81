package plan

import (
	"time"
)

// repeatCancel is the pause before scancel is run again for a job that does
// not end.
const repeatCancel = 30 * time.Second

// stopping: the job is to go away. An attempt that has not begun is closed,
// so that the kill is final without waiting for Slurm; one that has begun is
// cancelled and its results are kept.
func (d *decision) stopping() {
	if d.row.Job.ID == 0 && d.row.Begun == nil && !d.findJob() {
		return
	}
	d.watch()
	if d.ownEnd() {
		return
	}
	d.cancel()
	if d.row.Begun != nil {
		if !d.row.Ended.IsZero() && d.settled() {
			d.concluded(*d.row.Stop)
		}
		return
	}
	if !d.row.Closed {
		d.want(Close)
		d.wake(d.now.Add(d.policy.Settle))
		return
	}
	if !d.row.Cancelled.IsZero() || !d.row.Ended.IsZero() {
		d.finish(*d.row.Stop, "stopped before it began: "+d.row.Reason)
	}
}

// findJob looks for the job of a submission whose answer is not known, and
// ends the row when there is none.
func (d *decision) findJob() bool {
	for _, s := range []*Sighting{d.news.Sighting, d.news.Accounted} {
		if job, ok := adoptable(s); ok {
			d.row.Job, d.row.Ended = job, time.Time{}
			return true
		}
	}
	s := d.news.Submitted
	switch {
	case s != nil && s.Attempt == d.row.Attempt && s.Job != 0:
		d.row.Job.ID = s.Job
		return true
	case s != nil && s.Attempt == d.row.Attempt && s.Refused:
		d.finish(*d.row.Stop, "stopped; Slurm had refused it")
	case d.absent():
		d.finish(*d.row.Stop, "stopped; there is no job of it")
	}
	return false
}

// cancel wants scancel, and wants it again while the job lives.
func (d *decision) cancel() {
	switch c := d.news.Cancelled; {
	case c == nil:
	case c.Failure != "":
		d.again(c.Failure)
	default:
		d.row.Cancelled = d.now
		d.row.Due = d.now.Add(repeatCancel)
	}
	if d.row.Ended.IsZero() && d.row.Job.ID != 0 && !d.waiting() {
		d.want(Cancel)
	}
}

// collecting: the results go to the server.
func (d *decision) collecting() {
	c := d.news.Collected
	switch {
	case c == nil:
		if !d.waiting() {
			d.want(Collect)
		}
	case c.Failure == "":
		d.delivered("the results are with the server")
	case c.Gone:
		d.drop("the server does not know the bundle any more: " + c.Failure)
	case c.Final || d.now.Sub(d.row.Since) > d.policy.CollectPatience:
		if d.row.Verdict.Failure == "" {
			d.row.Verdict.Failure = "The results could not be delivered: " + sentence(c.Failure)
		}
		d.delivered("the results could not be delivered: " + c.Failure)
	default:
		d.again(c.Failure)
	}
}

func (d *decision) delivered(reason string) {
	d.enter(Finalizing, reason)
	d.row.Times.Finalizing = d.now
}

// finalizing: the verdict stands and is reported with every check-in, until
// hear takes the server's acknowledgement in.
func (d *decision) finalizing() {}

// done: what is left is removed after a while.
func (d *decision) done() {
	switch rel := d.news.Released; {
	case d.waiting():
	case rel == nil:
		d.want(Release)
	case rel.Failure != "":
		d.again(rel.Failure)
	default:
		d.want(Forget)
	}
}
