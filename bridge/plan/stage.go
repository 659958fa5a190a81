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
	claim, confirmed := d.news.Claimed, d.news.Confirmed
	switch {
	case claim != nil && claim.Failure == "" && claim.Accepted:
		d.claimed("the server confirmed the claim")
	case claim != nil && claim.Gone:
		d.dropRow("the claim was refused: " + claim.Failure)
	case claim != nil && claim.Failure != "" && !claim.Final:
		d.tryLater(claim.Failure)
	case claim != nil:
		d.row.LastFailure = claim.Failure
		d.wantEffect(Confirm)
	case confirmed != nil && !confirmed.Asked.Before(d.row.ReofferedAt):
		d.notClaimed(*confirmed)
	case !d.waiting():
		d.wantEffect(Claim)
	}
}

// claimed stages a bundle that the server has given to this bridge, or refuses its request.
func (d *decision) claimed(reason string) {
	d.row.Times.Preparing = d.now
	if stop := d.row.StopVerdict; stop != nil && stop.Restage {
		d.giveBack(*stop, "the worker ends: given back to the server")
		return
	}
	if c := d.news.Claimed; c != nil && c.OwnerName != "" {
		run := *d.row.Run
		run.OwnerName = c.OwnerName
		d.row.Run = &run
	}
	if refusal := d.queue.refusal(d.row); refusal != "" {
		d.endUnbegun(Verdict{Cause: spool.CauseUser, Failure: refusal}, "the queue refuses the request")
		return
	}
	if m := d.policy.mapping(d.row); m.Refuse != "" {
		d.endUnbegun(Verdict{Cause: spool.CauseUser, Failure: codalab.Sentence(m.Refuse)}, "the site's table refuses the owner")
		return
	}
	if c := d.news.Claimed; c != nil && c.Refusal != "" { // do not stage an image and dependencies in vain
		d.endRefused(c.Refusal)
		return
	}
	d.enter(Staging, reason)
}

// notClaimed decides a row after the server refused the claim and answered a question about the bundle.
// Usually another worker has the bundle, and the row is dropped. There are three exceptions.
//
// The server may have granted an earlier claim: the bridge died before it read the answer, and was down
// for a minute. Or the server was restored from an older copy. In both cases the server shows the bundle
// as worker_offline and as this bridge's own, and only a report brings it back.
//
// A bundle that the server has staged again belongs to no worker. An earlier report may still reach the
// server and give the bundle back to this bridge, so the row stays.
func (d *decision) notClaimed(c Confirmation) {
	switch {
	case c.Failure != "" && !c.Final && !c.Gone:
		d.tryLater(c.Failure)
	case c.Failure != "":
		d.dropRow("the claim was refused: " + cmp.Or(d.row.LastFailure, c.Failure))
	case c.State == codalab.StateStarting, c.State == codalab.StatePreparing && c.Here:
		d.tryLater("the server is giving the bundle to a worker")
	case c.State == codalab.StateWorkerOffline && c.Here:
		d.claimed("the server had confirmed an earlier claim, and takes the bridge for lost since")
	case d.row.LastFailure != "":
		d.dropRow("the claim was refused: " + d.row.LastFailure)
	case c.State == codalab.StateStaged:
		d.tryLater("the server has the bundle staged, and will offer it again")
	default:
		d.dropRow("the server gave the bundle to another worker")
	}
}

// dropRow ends a row whose bundle belongs to another worker, or was deleted. It does not claim a bundle
// that the same news offers, because the server repeats the offer.
func (d *decision) dropRow(reason string) {
	d.enter(Done, reason)
	d.row.Dropped = true
	d.effects = slices.DeleteFunc(d.effects, func(e Effect) bool { return e.Kind == Claim })
}

// Refusal returns why the bridge refuses a bundle's request before Slurm is asked; empty if it does not.
func (p Policy) Refusal(r Row) string {
	if refuse := p.mapping(r).Refuse; refuse != "" {
		return codalab.Sentence(refuse)
	}
	return p.Queues[r.Queue].refusal(r)
}

// refusal returns the reason for which the queue refuses a request; empty if it accepts it.
func (q Queue) refusal(r Row) string {
	if q.Name == "" {
		return fmt.Sprintf("The bridge no longer has a queue %q.", r.Queue)
	}
	if r.Resources.Invalid != "" {
		return r.Resources.Invalid
	}
	if _, err := r.asksToResume(); err != nil {
		return err.Error()
	}
	if asked := seconds(r.Resources.Time); q.MaxTime > 0 && asked > q.MaxTime {
		return fmt.Sprintf("Queue %s runs bundles for at most %s, and %s was asked for: lower --request-time or use another queue.",
			q.Tag, codalab.FormatDuration(q.MaxTime), codalab.FormatDuration(asked))
	}
	return ""
}

func (d *decision) staging() {
	if f := d.news.Found; f != nil && d.row.MayTakeUp(f.Stamp) {
		d.adoptFound(*f)
		return
	}
	if d.row.StopVerdict != nil {
		d.endUnsubmitted()
		return
	}
	// A bundle that was never submitted may be another worker's, so the row goes back and
	// asks the server. A row with attempts must not forget them.
	if c := d.news.Claimed; c != nil && c.Failure == "" && !c.Accepted && d.row.Attempt.Number == 0 {
		d.enter(Claiming, "the server refused another claim")
		return
	}
	if d.row.Staged != nil { // Batch decides when it is submitted
		d.carrying()
		return
	}
	d.applyDiskSpace()
	end := d.news.Staged
	if end != nil || d.news.Progress != "" {
		d.row.Progress = d.news.Progress
	}
	switch {
	case end == nil:
		if !d.waiting() && d.row.DiskLow == "" {
			d.wantEffect(Stage)
		}
	case end.Failure == "":
		inputs := end.Inputs
		d.row.Staged = &inputs
		d.row.Spent.StagedAt = cmp.Or(d.row.Spent.StagedAt, d.now)
		d.row.DueAt, d.row.Retry, d.row.Progress, d.row.DiskLow = time.Time{}, Retry{}, "", ""
		d.row.Reason = noted("image and dependencies are ready", d.row.Notes())
		d.carrying()
	case end.Final && !end.Full || d.stagingPatienceOver(end.Outcome):
		v := Verdict{Cause: spool.CauseUser, Failure: codalab.Sentence(end.Failure)}
		if !end.Final || end.Full {
			v.Cause = spool.CausePlatform
			v.Failure += fmt.Sprintf(" It failed %d times in %s.", d.row.FailedTries+1, codalab.FormatDuration(d.now.Sub(d.row.FailingSince)))
		}
		d.endUnbegun(v, "staging failed")
	default:
		d.tryLater(end.Failure)
		if later := d.now.Add(min(end.After, longestRegistryPause)); later.After(d.row.DueAt) {
			d.row.DueAt = later
		}
	}
}

// noted returns a reason followed by sentences about the data.
func noted(reason string, notes []string) string {
	if len(notes) == 0 {
		return reason
	}
	return joinSentences(reason+".", notes)
}

// adoptFound continues the attempt of a job that the ledger does not know: the ledger was restored from a
// copy that is older than the submission.
func (d *decision) adoptFound(f Found) {
	r := &d.row
	r.Attempt.Number, r.Generation, r.SbatchCount = f.Stamp.Attempt, f.Stamp.Generation, 1
	r.OnDisk = f.Stamp.OnDisk
	r.SubmissionName, r.Prepared, r.SubmittedAt = d.policy.submissionName(*r), true, d.now
	if f.Shared {
		r.Shared, r.Pack, r.Index = true, f.Pack, f.Index
		if d.policy.isName(f.Job.Name) { // else somebody has renamed it
			r.SubmissionName = SubmissionName(f.Job.Name)
		}
	}
	d.adopt(f.Job, "found in the queue, although the ledger does not know of its submission")
}
