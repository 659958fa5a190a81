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
	case !d.row.Closed:
		d.close()
	case gone || !d.row.Cancelled.IsZero() && d.row.Gone.IsZero():
		d.finish(*d.row.Stop, "stopped before it began: "+d.row.Stop.Failure)
	}
}

// close wants the attempt closed, so that it can never begin.
func (d *decision) close() { d.ask(Close, d.closingFailed()) }

// closingFailed is why the attempt's closing has just failed; empty when it has
// not. It is waited for before anything is asked that led to the closing.
func (d *decision) closingFailed() string {
	if c := d.news.Closed; c != nil && c.Attempt == d.row.Attempt {
		return c.Failure
	}
	return ""
}

// findJob looks for the job of a submission whose answer is not known, and
// ends the row when there is none. Meanwhile the attempt is closed.
func (d *decision) findJob() bool {
	for _, s := range []*Sighting{d.news.Sighting, d.news.Accounted} {
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
	case !d.row.Closed: // a job may still arrive, and must find that it may not begin
		d.close()
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
// acknowledgement for a new end of the bundle, so the verdict is reported again
// only if the server, when it is asked, shows that it has not got it. The bridge
// asks after a while, after a restart, and when a check-in got no answer.
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

// askedSince says whether the server was asked after the row entered its phase.
// What it showed before that says nothing of what was offered, reported or
// acknowledged since.
func (d *decision) askedSince(c Confirmation) bool { return !c.Asked.Before(d.row.Since) }

// held says whether a server with a bundle in this state believes that a worker
// has the bundle and has not reported its end.
func held(s codalab.State) bool {
	return s == codalab.StatePreparing || s == codalab.StateRunning || s == codalab.StateWorkerOffline
}

// acknowledged ends the reporting. The results are kept for a while, in case
// the server offers the bundle again or loses its end.
func (d *decision) acknowledged(reason string) {
	d.enter(Done, reason)
	d.row.KeepUntil = d.now.Add(d.policy.KeepAfterAck)
	d.row.Due = d.nextCheck()
}

// firstCheck is when the server is first asked whether a bundle that it has
// acknowledged is still at its end; each later check is checkFactor times as
// late as the one before.
const (
	firstCheck  = 15 * time.Second
	checkFactor = 8
)

// nextCheck is when the server is asked next, the last time before the files
// are removed.
func (d *decision) nextCheck() time.Time {
	after := firstCheck
	for after < d.policy.KeepAfterAck && !d.row.Since.Add(after).After(d.now) {
		after *= checkFactor
	}
	if next := d.row.Since.Add(after); next.After(d.now) && next.Before(d.row.KeepUntil) {
		return next
	}
	return d.row.KeepUntil
}

// done: what is left is removed after a while. Until then the server is asked
// now and then: a report that it applied late, or a database that was restored,
// brings a bundle back that nobody else would bring to its end.
func (d *decision) done() {
	if d.row.Dropped || d.row.Releasing {
		d.release()
		return
	}
	switch c := d.news.Confirmed; {
	case c == nil:
		if !d.waiting() {
			d.want(Confirm)
		}
	case d.thrownAway(*c) && d.askedSince(*c):
		d.sendAgain(c.Lost)
	case c.Failure == "" && c.State == codalab.StateWorkerOffline && d.askedSince(*c):
		d.endAgain()
	case unsettled(*c):
		d.row.Tries++
		d.row.Due = d.now.Add(backoff(d.row.Tries))
	case d.now.Before(d.row.KeepUntil):
		d.row.Tries = 0
		d.row.Due = d.nextCheck()
	default:
		d.release()
	}
}

// endAgain brings a bundle to its end again that the server had at its end and has
// as worker_offline since. Whether it still has the results nobody knows.
func (d *decision) endAgain() {
	const reason = "the server has lost the bundle's end (worker_offline)"
	if d.row.Begun == nil || d.row.Undelivered {
		d.finalize(reason + ": the verdict is reported again")
		return
	}
	d.enter(Collecting, reason+": the results are delivered again")
}

// thrownAway says whether the server has thrown away results that the bridge delivers
// again. It does not deliver those again that it has given up: the server would refuse
// them once more, and keep the message of that.
func (d *decision) thrownAway(c Confirmation) bool {
	return c.Lost != "" && d.row.Begun != nil && !d.row.Undelivered
}

// sendAgain has the results delivered again that the server has thrown away, and
// with them the verdict: an upload that was cut may fail at the server after
// everything else.
func (d *decision) sendAgain(lost string) {
	d.enter(Collecting, "the server has thrown the results away, they are delivered again: "+lost)
}

// unsettled says whether a bundle that the server has acknowledged is to be asked
// for again soon: the server is away, or has a worker's report still to act on. A
// refusal for good would only repeat itself.
func unsettled(c Confirmation) bool {
	if c.Failure != "" {
		return !c.Final && !c.Gone
	}
	return held(c.State) || c.State == codalab.StateFinalizing
}

// release removes what is left.
func (d *decision) release() {
	switch rel := d.news.Released; {
	case d.waiting():
	case rel == nil:
		d.row.Releasing = true
		d.want(Release)
	case rel.Failure != "":
		d.again(rel.Failure)
	default:
		d.want(Forget)
	}
}
