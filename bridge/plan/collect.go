package plan

import (
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// collect ends a bundle whose results are to be collected.
func (d *decision) collect(v Verdict, reason string) {
	d.row.Verdict = &v
	d.enter(Collecting, reason)
	d.row.Times.CleaningUp, d.row.Times.Uploading = d.now, d.now
}

// endUnbegun ends a bundle whose attempt has not begun. It has results only if it was resumed: those of the attempt
// before.
func (d *decision) endUnbegun(v Verdict, reason string) {
	switch {
	case v.Restage:
		d.giveBack(v, reason)
	case d.row.Resumption.From != "":
		d.collect(v, reason)
	default:
		d.row.Verdict = &v
		d.finalize(reason)
	}
}

// collecting: the results go to the server. Until the verdict is reported, an exit record that the disk
// shows late still replaces the verdict from Slurm's state.
func (d *decision) collecting() {
	if d.exitIsNew && d.row.Times.Finalizing.IsZero() {
		v := d.explainResumption(d.ownVerdict(*d.row.Exit))
		d.row.Verdict = &v
	}
	d.cancelLeftJob()
	if d.endedAtServer() {
		return
	}
	if d.news.DataChanged != "" {
		d.row.DataChanged = d.news.DataChanged
	}
	c := d.news.Collected
	if c != nil || d.news.Progress != "" {
		d.row.Progress = d.news.Progress
	}
	switch {
	case c == nil:
		if !d.waiting() || d.news.Restarted && d.row.Room != nil { // whose pause may be half an hour long
			d.wantEffect(Collect)
		}
	case c.Held != nil && (d.row.GivesUp || c.Failure == ""):
		d.givenUp(*c.Held)
	case c.Failure == "":
		d.row.Uncollected, d.row.Room = false, nil
		reason := collectedReason(c.Details)
		if d.row.GivesUp {
			d.row.GivesUp = false
			reason += "; the kill came too late to give the upload up"
		}
		if d.row.DataChanged != "" {
			reason = noted(reason, []string{d.row.DataChanged})
		}
		d.finalize(reason)
	case c.Gone:
		d.endReporting("the server no longer has the bundle: " + c.Failure)
	case c.Held != nil:
		d.awaitRoom(*c.Held)
	case c.Final || d.patienceOver(d.policy.CollectPatience):
		d.failUncollected(c.Failure)
		d.row.Uncollected = true
		d.finalize("the results could not be collected: " + c.Failure)
	default:
		d.tryLater(c.Failure)
		d.wantEffect(Confirm) // the server may have the results already, and refuse them
	}
}

// collectedReason returns the reason of a row whose results are collected.
func collectedReason(what string) string {
	if what == "" {
		return "the results are with the server"
	}
	return "the results are with the server: " + what
}

// endedAtServer ends the reporting if the server shows the bundle at its end, which counts as an
// acknowledgement, or no longer has it. It reports whether it did.
func (d *decision) endedAtServer() bool {
	c := d.news.Confirmed
	switch {
	case c == nil:
		return false
	case c.Gone:
		d.endReporting("the server no longer has the bundle: " + c.Failure)
	case c.Failure == "" && c.State.Final() && !d.uploadFailed(*c) && d.askedSince(*c):
		d.endReporting("the server has the verdict: the bundle is " + string(c.State))
	default:
		return false
	}
	return true
}

// failUncollected turns the verdict into a failure because the results cannot be collected, unless a
// verdict was reported already.
func (d *decision) failUncollected(why string) {
	if d.row.GivesUp {
		d.killUncollected("The upload of the results was given up, and the end of stdout and stderr could not be sent: " + codalab.Sentence(why))
		return
	}
	if d.row.Verdict.Failure != "" || !d.row.Times.Finalizing.IsZero() {
		return
	}
	v := *d.row.Verdict
	v.Cause, v.Failure = spool.CausePlatform, "The results could not be collected: "+codalab.Sentence(why)
	d.row.Verdict = &v
}

// finalize starts the reporting of the verdict.
func (d *decision) finalize(reason string) {
	d.enter(Finalizing, reason)
	d.row.Times.Finalizing = d.now
	d.row.ReportCount++
	d.row.DueAt = d.now.Add(firstAckPause)
}

// firstAckPause is the time that the server has for its acknowledgement before the bridge's first question.
const firstAckPause = 15 * time.Second

// finalizing: the verdict is reported once, and applyMessages notes the server's acknowledgement. CodaLab's
// own server takes a report that comes after its acknowledgement for a new end of the bundle. So the bridge
// first asks the server: after a pause, after a restart, and if a check-in got no answer. It reports the
// verdict again only if the server shows that it does not have it.
func (d *decision) finalizing() {
	d.cancelLeftJob()
	c := d.news.Confirmed
	switch {
	case c == nil:
		if !d.waiting() || d.news.Restarted || d.news.Unanswered {
			d.wantEffect(Confirm)
		}
	case d.endedAtServer():
	case c.Failure != "":
		d.tryLater(c.Failure)
	case d.uploadFailed(*c) && d.askedSince(*c):
		d.collectAgain(c.UploadFailure)
	case withWorker(c.State) && !c.Carried && d.askedSince(*c):
		d.finalize(fmt.Sprintf("the server has not got the verdict, and has the bundle %s: reported again", c.State))
	default:
		pause := min(max(d.now.Sub(d.row.PhaseSince), firstAckPause), d.policy.LongestAckPause)
		d.row.DueAt = d.now.Add(pause)
	}
}

// askedSince reports whether the bridge sent the question after the row entered its phase. The answer to
// an older question says nothing about the offer, report or acknowledgement that began the phase.
func (d *decision) askedSince(c Confirmation) bool { return !c.Asked.Before(d.row.PhaseSince) }

// withWorker reports whether a server that shows this state believes that a worker has the bundle and
// has not reported its end.
func withWorker(s codalab.State) bool {
	return s == codalab.StatePreparing || s == codalab.StateRunning || s == codalab.StateWorkerOffline
}

// uploadFailed reports whether the server has thrown away results that the bridge can collect
// again. Results that the bridge has given up are not collected again, because the server would
// refuse them once more.
func (d *decision) uploadFailed(c Confirmation) bool {
	return c.UploadFailure != "" && d.row.HasFiles() && !d.row.Uncollected
}

// collectAgain collects results again that the server has thrown away, and then the verdict. This may
// happen after the acknowledgement: CodaLab's own server may notice late that an earlier upload broke off.
func (d *decision) collectAgain(uploadFailure string) {
	d.enter(Collecting, "the server has thrown the results away, and they are collected again: "+uploadFailure)
}
