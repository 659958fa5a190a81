package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

func (d *decision) claiming() {
	answer, asked := d.news.Claimed, d.news.Confirmed
	switch {
	case answer != nil && answer.Failure == "" && answer.Accepted:
		d.claimed("the server confirmed the claim")
	case answer != nil && answer.Gone:
		d.drop("the claim was refused: " + answer.Failure)
	case answer != nil && answer.Failure != "" && !answer.Final:
		d.again(answer.Failure)
	case answer != nil:
		d.row.Trouble = answer.Failure
		d.want(Confirm)
	case asked != nil && !asked.Asked.Before(d.row.Offered):
		d.notClaimed(*asked)
	case !d.waiting():
		d.want(Claim)
	}
}

// claimed stages a bundle that is ours, or refuses its request.
func (d *decision) claimed(reason string) {
	d.row.Times.Preparing = d.now
	if refusal := d.queue.refusal(d.row); refusal != "" {
		d.finish(Verdict{Cause: spool.CauseUser, Failure: refusal}, "the queue refuses the request")
		return
	}
	d.enter(Staging, reason)
}

// notClaimed decides a row after the server refused the claim and was asked for the
// bundle. As a rule another worker has the bundle, and the row is dropped. But the
// server may have granted an earlier claim: the bridge died before it read the
// answer, and was away for a minute. Or the server was restored from an older copy.
// It then shows the bundle as worker_offline, and as this bridge's own: only a report
// brings it back.
func (d *decision) notClaimed(c Confirmation) {
	switch {
	case c.Failure != "" && !c.Final && !c.Gone:
		d.again(c.Failure)
	case c.Failure != "":
		d.drop("the claim was refused: " + cmp.Or(d.row.Trouble, c.Failure))
	case c.State == codalab.StateStarting, c.State == codalab.StatePreparing && c.Here:
		d.again("the server is giving the bundle to a worker")
	case c.State == codalab.StateWorkerOffline && c.Here:
		d.claimed("the server had confirmed an earlier claim, and lost sight of the bridge since")
	case d.row.Trouble != "":
		d.drop("the claim was refused: " + d.row.Trouble)
	default:
		d.drop("the server gave the bundle to another worker")
	}
}

// drop ends a row that is not ours. An offer that was heard in the same breath
// is not answered: the server makes it again.
func (d *decision) drop(reason string) {
	d.enter(Done, reason)
	d.row.Dropped = true
	d.effects = slices.DeleteFunc(d.effects, func(e Effect) bool { return e.Kind == Claim })
}

// refusal is why the queue does not take a request; empty when it does.
func (q Queue) refusal(r Row) string {
	if q.Name == "" {
		return fmt.Sprintf("The bridge has no queue %q any more.", r.Queue)
	}
	if r.Resources.Invalid != "" {
		return r.Resources.Invalid
	}
	if asked := seconds(r.Resources.Time); q.MaxTime > 0 && asked > q.MaxTime {
		return fmt.Sprintf("Queue %s runs bundles for at most %s, and %s was asked for: lower --request-time or use another queue.",
			q.Tag, codalab.FormatDuration(q.MaxTime), codalab.FormatDuration(asked))
	}
	return ""
}

func (d *decision) staging() {
	if f := d.news.Found; f != nil && f.Stamp.Attempt > d.row.Attempt {
		d.takeUp(*f)
		return
	}
	if d.row.Stop != nil {
		d.finish(*d.row.Stop, "stopped before it was submitted: "+d.row.Stop.Failure)
		return
	}
	// What was never submitted may be another worker's: the server is asked. Of
	// anything else the attempts must not be forgotten.
	if c := d.news.Claimed; c != nil && c.Failure == "" && !c.Accepted && d.row.Attempt == 0 {
		d.enter(Claiming, "the server refused another claim")
		return
	}
	if d.row.Staged != nil {
		return // Batch decides when it is submitted
	}
	d.heedDisk()
	answer := d.news.Staged
	if answer != nil || d.news.Progress != "" {
		d.row.Progress = d.news.Progress
	}
	switch {
	case answer == nil:
		if !d.waiting() && d.row.Low == "" {
			d.want(Stage)
		}
	case answer.Failure == "":
		inputs := answer.Inputs
		d.row.Staged = &inputs
		d.row.Due, d.row.Tries, d.row.Trouble, d.row.Progress, d.row.Low = time.Time{}, 0, "", "", ""
		d.calm()
		d.row.Reason = noted("image and dependencies are there", d.row.Notes())
	case answer.Final && !answer.Full || d.stagedEnough(answer.Outcome):
		cause := spool.CausePlatform
		if answer.Final && !answer.Full {
			cause = spool.CauseUser
		}
		d.finish(Verdict{Cause: cause, Failure: sentence(answer.Failure)}, "staging failed")
	default:
		d.again(answer.Failure)
		if later := d.now.Add(min(answer.After, longestPause)); later.After(d.row.Due) {
			d.row.Due = later
		}
	}
}

// longestPause is how long a registry is left alone at most, whatever it asks for.
const longestPause = 6 * time.Hour

// fullPatience is how long room on a disk is waited for. What is too large for
// the whole disk must not fill it for ever.
const fullPatience = 3 * 24 * time.Hour

// stagedEnough says whether staging, which has failed, is given up. Its patience
// begins with the first failure: before, it may have worked for hours. An outage
// or a full disk takes none of what is for the bundle's own troubles, nor do
// those take of it; but what fails by turns does not fail for ever. While the
// disk is below its low water nothing is given up.
func (d *decision) stagedEnough(o Outcome) bool {
	patience, outage := d.policy.StagePatience, o.Outage || o.Full
	if o.Outage {
		patience = max(patience, d.policy.OutagePatience)
	}
	if o.Full {
		patience = max(patience, fullPatience)
	}
	r := &d.row
	switch {
	case r.Troubled.IsZero():
		r.Troubled = d.now
	case r.Outage != outage:
		r.Turned = d.now
	}
	r.Outage = outage
	since := r.Troubled
	if r.Turned.After(since) {
		since = r.Turned
	}
	inAll := max(d.policy.StagePatience, d.policy.OutagePatience, fullPatience)
	long := d.now.Sub(since) > patience || d.now.Sub(r.Troubled) > inAll
	return long && r.Tries >= leastTries && r.Low == ""
}

// noted is a reason with what there is to know of the data.
func noted(reason string, notes []string) string {
	if len(notes) == 0 {
		return reason
	}
	return with(reason+".", notes)
}

// takeUp goes on where the ledger was before it was put back: with the attempt
// that was submitted then.
func (d *decision) takeUp(f Found) {
	r := &d.row
	r.Attempt, r.Generation, r.Sbatches = f.Stamp.Attempt, f.Stamp.Generation, 1
	r.SubmissionName, r.Index, r.Prepared, r.Submitted = d.policy.SubmissionNameOf(f.Job), 0, true, d.now
	d.adopt(f.Job, "found in the queue, though the ledger does not know that it was submitted")
}
