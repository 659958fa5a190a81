package plan

import (
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
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
	gone := !d.row.Ended.IsZero()
	switch {
	case d.row.Begun != nil:
		if gone && d.settled() && d.lastWord() {
			d.concluded(*d.row.Stop)
		}
	case !d.row.Fenced:
		d.fence()
	case gone || !d.row.Cancelled.IsZero() && d.row.Gone.IsZero():
		d.finish(*d.row.Stop, "stopped before it began: "+d.row.Stop.Failure)
	}
}

// fence wants the attempt closed, so that it can never begin.
func (d *decision) fence() { d.ask(Fence, d.closingFailed()) }

// closingFailed is why the attempt's closing has just failed; empty when it has
// not. It is waited for before anything is asked that led to the closing.
func (d *decision) closingFailed() string {
	if c := d.news.Fenced; c != nil && c.Attempt == d.row.Attempt {
		return c.Failure
	}
	return ""
}

// findJob looks for the job of a submission whose answer is not known, and
// ends the row when there is none. Meanwhile the attempt is closed.
func (d *decision) findJob() bool {
	for _, s := range []*Observation{d.news.Observation, d.news.Accounting} {
		if job, ok := adoptable(s); ok {
			d.row.Job, d.row.Absent = job, time.Time{}
			return true
		}
	}
	s := d.news.Submitted
	switch {
	case s != nil && s.Attempt == d.row.Attempt && s.Job != 0:
		d.row.Job.ID, d.row.Absent = s.Job, time.Time{}
		return true
	case s != nil && s.Attempt == d.row.Attempt && s.Refused && d.row.Sbatches <= 1:
		d.finish(*d.row.Stop, "stopped; Slurm had refused it")
	case !d.row.Fenced: // a job may still arrive, and must find that it may not begin
		d.fence()
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

// collecting: the results go to the server. Until the verdict is reported an
// exit record that the disk shows late still outranks what Slurm said.
func (d *decision) collecting() {
	if d.late && d.row.Times.Finalizing.IsZero() {
		v := d.own(*d.row.Exit)
		d.row.Verdict = &v
	}
	if d.ended() {
		return
	}
	if d.news.Changed != "" {
		d.row.Changed = d.news.Changed
	}
	c := d.news.Collected
	if c != nil || d.news.Progress != "" {
		d.row.Progress = d.news.Progress
	}
	switch {
	case c == nil:
		if !d.waiting() {
			d.want(Collect)
		}
	case c.Failure == "":
		d.row.Undelivered = false
		reason := delivered(c.Done)
		if d.row.Changed != "" {
			reason = noted(reason, []string{d.row.Changed})
		}
		d.finalize(reason)
	case c.Gone:
		d.acknowledged("the server does not know the bundle any more: " + c.Failure)
	case c.Final || d.troubledFor(d.policy.CollectPatience):
		d.undeliverable(c.Failure)
		d.row.Undelivered = true
		d.finalize("the results could not be delivered: " + c.Failure)
	default:
		d.again(c.Failure)
		d.want(Confirm) // the server may have the result already, and take no other
	}
}

// delivered is the reason that the results need no further delivery.
func delivered(what string) string {
	if what == "" {
		return "the results are with the server"
	}
	return "the results are with the server: " + what
}

// ended says whether the server has said that the bundle has ended there, and
// takes that for its acknowledgement.
func (d *decision) ended() bool {
	c := d.news.Confirmed
	switch {
	case c == nil:
		return false
	case c.Gone:
		d.acknowledged("the server does not know the bundle any more: " + c.Failure)
	case c.Failure == "" && c.State.Final() && !d.thrownAway(*c) && d.askedSince(*c):
		d.acknowledged("the server has the result: the bundle is " + string(c.State))
	default:
		return false
	}
	return true
}

// undeliverable makes a failure of a verdict whose results are lost to the
// server, unless that verdict was reported already.
func (d *decision) undeliverable(why string) {
	if d.row.Verdict.Failure != "" || !d.row.Times.Finalizing.IsZero() {
		return
	}
	v := *d.row.Verdict
	v.Cause, v.Failure = spool.CausePlatform, "The results could not be delivered: "+sentence(why)
	d.row.Verdict = &v
}

// finalize has the verdict reported.
func (d *decision) finalize(reason string) {
	d.enter(Finalizing, reason)
	d.row.Times.Finalizing = d.now
	d.row.Reports++
	d.row.Due = d.now.Add(leastAckPatience)
}

// leastAckPatience is how long the server has for its acknowledgement before it
// is asked for the first time.
const leastAckPatience = 15 * time.Second

// finalizing: the verdict is reported once, and hear takes the server's
// acknowledgement in. CodaLab's own server takes a report that comes after its
// acknowledgement for a new end of the bundle. So the bridge asks the server first,
// after a while, after a restart and when a check-in got no answer, and reports the
// verdict again only if the server shows that it has not got it.
func (d *decision) finalizing() {
	c := d.news.Confirmed
	switch {
	case c == nil:
		if !d.waiting() || d.news.Restarted || d.news.Unanswered {
			d.want(Confirm)
		}
	case d.ended():
	case c.Failure != "":
		d.again(c.Failure)
	case d.thrownAway(*c) && d.askedSince(*c):
		d.sendAgain(c.Lost)
	case held(c.State) && !c.Carried && d.askedSince(*c):
		d.finalize(fmt.Sprintf("the server has not got the verdict, and has the bundle %s: reported again", c.State))
	default:
		patience := min(max(d.now.Sub(d.row.Since), leastAckPatience), d.policy.AckPatience)
		d.row.Due = d.now.Add(patience)
	}
}

// askedSince says whether the server was asked after the row entered its phase. The
// answer to an older question says nothing of the offer, report or acknowledgement
// that began the phase.
func (d *decision) askedSince(c Confirmation) bool { return !c.Asked.Before(d.row.Since) }

// held says whether a server with a bundle in this state believes that a worker
// has the bundle and has not reported its end.
func held(s codalab.State) bool {
	return s == codalab.StatePreparing || s == codalab.StateRunning || s == codalab.StateWorkerOffline
}

// thrownAway says whether the server has thrown away results that the bridge can
// deliver again. Results that it has given up are not delivered again: the server
// would refuse them once more.
func (d *decision) thrownAway(c Confirmation) bool {
	return c.Lost != "" && d.row.Begun != nil && !d.row.Undelivered
}

// sendAgain has the results delivered again that the server has thrown away, and
// then the verdict. This may happen after the acknowledgement: CodaLab's own server
// may find out last that an earlier upload has broken off.
func (d *decision) sendAgain(lost string) {
	d.enter(Collecting, "the server has thrown the results away, they are delivered again: "+lost)
}
