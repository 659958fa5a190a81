package plan

import (
	"cmp"
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// submitting: sbatch is wanted once. If its answer is lost the bridge searches for the job by its
// submission name, and wants sbatch again only if there is no job.
func (d *decision) submitting() {
	switch {
	case d.findsJob():
	case d.row.Shared:
		d.submittingShared()
	default:
		d.submittingAlone()
	}
}

// findsJob reports whether the attempt has begun, or its job is found: the row has left the phase then.
func (d *decision) findsJob() bool {
	if d.row.Begun != nil {
		d.enter(Running, "the attempt has begun")
		return true
	}
	if d.row.Slot > 0 { // its pack's job shows nothing of the slot
		return false
	}
	if job, ok := adoptable(d.news.Observation); ok {
		d.adopt(job, "found in the queue by its name")
		return true
	}
	if job, ok := adoptable(d.news.Accounting); ok {
		d.adopt(job, "found in accounting by its name")
		return true
	}
	return false
}

// submittingAlone is submitting for a row with a submission of its own.
func (d *decision) submittingAlone() {
	if s := d.news.Submitted; s != nil && s.Attempt == d.row.Attempt.Number {
		d.applySubmission(*s)
	}
	switch {
	case d.row.Phase != Submitting:
	case d.row.StopVerdict != nil && d.row.SubmittedAt.IsZero() && d.row.SbatchCount == 0:
		d.endUnsubmitted()
	case d.row.StopVerdict != nil: // there may be a job, even if Slurm has refused the last sbatch for now
		d.enterStopping()
	case d.row.RepeatRefusal != "" && d.row.Fenced && d.row.QueueTrouble:
		d.nextAttempt("Slurm refused the job: " + d.row.RepeatRefusal)
	case d.row.RepeatRefusal != "" && d.row.Fenced:
		d.endRefused(d.row.RepeatRefusal)
	case d.row.RepeatRefusal != "":
		d.fence()
	case d.row.SubmittedAt.IsZero() && !d.row.Prepared:
		d.prepare()
	case d.row.SubmittedAt.IsZero():
		if !d.waiting() {
			d.submit(d.row.Reason)
		}
	case d.fencingFailure() != "" && !d.row.Fenced:
		d.fence()
	case !d.provenAbsent():
	case d.row.Fenced:
		d.conclude(platform("Slurm gave no clear answer to the submission, and has no such job: %s", codalab.Sentence(d.row.LastFailure)))
	case d.row.UnclearCount >= unclearAnswers:
		d.fence()
	default:
		d.submit("sbatch's answer was lost and there is no such job: submitted again under the same name")
	}
}

// prepare wants the job's specification on the shared disk, and then submits the job.
func (d *decision) prepare() {
	p := d.news.Prepared
	if p != nil && p.Generation != 0 && p.Generation != d.row.Generation {
		p = nil // the attempt left that submission for another one
	}
	if p != nil || d.news.Progress != "" {
		d.row.Progress = d.news.Progress
	}
	switch {
	case p == nil:
		d.wantUnlessFailed(Prepare, "")
	case p.Final: // the owner has removed a secret since
		d.endUnbegun(Verdict{Cause: spool.CauseUser, Failure: codalab.Sentence(p.Failure)}, "the server does not give the bundle's secrets")
	case p.Failure != "":
		d.tryLater(p.Failure)
	default:
		d.row.Prepared, d.row.LastFailure = true, ""
		if d.row.Shared {
			d.row.Reason = "its specification is on the shared disk; it goes to Slurm with others"
			return
		}
		d.submit(d.row.startReason())
	}
}

// unclearAnswers is the number of unclear answers of sbatch, each followed by the proof that there is no
// job, that end the attempt: a site's own wrapper may refuse with messages that the bridge does not know.
const unclearAnswers = 3

// submit wants sbatch. The row is saved with SubmittedAt before sbatch runs.
func (d *decision) submit(reason string) {
	d.row.SubmittedAt = d.now
	d.row.Asking.begin()
	d.row.TimeLimits = newTimeLimits(d.queue.jobLimit(d.row.Resources))
	d.row.DueAt = time.Time{}
	d.row.Reason = reason
	d.wantEffect(Submit)
}

// adoptable returns the submission's job in an observation, a live one rather than an ended one. It ignores
// the ghost of a refused submission.
func adoptable(s *Observation) (job sbatch.Job, ok bool) {
	if s == nil {
		return sbatch.Job{}, false
	}
	for _, j := range s.Jobs {
		switch {
		case ghost(j):
		case !j.State.Ended():
			return j, true
		case !ok:
			job, ok = j, true
		}
	}
	return job, ok
}

// supersedes reports whether a record of a job is newer than another one of the same job. The accounting database has a
// record for each start of a job, and those before the last one are REQUEUED.
func supersedes(j, other sbatch.Job) bool {
	return j.State != sbatch.StateRequeued && (other.State == sbatch.StateRequeued || j.Start.After(other.Start))
}

// ghost reports whether a job is the record that a refused submission leaves: it FAILED and never had a
// node.
func ghost(j sbatch.Job) bool { return j.State == sbatch.StateFailed && j.Nodes == "" }

func (d *decision) adopt(job sbatch.Job, reason string) {
	if d.recordsLag(job.State) {
		d.wantEffect(ReadRecords)
	}
	d.row.Job, d.row.AbsentAsOf, d.row.RefusedSince, d.row.RefusedAlone = job, time.Time{}, time.Time{}, 0
	if d.row.Standalone {
		reason = "the host has it"
	}
	d.enter(Queued, fmt.Sprintf("job %s: %s", job.ID, reason))
}

func (d *decision) applySubmission(s SbatchAnswer) {
	switch {
	case s.Job != 0:
		d.adopt(sbatch.Job{ID: s.Job, Name: string(d.row.SubmissionName), State: sbatch.StatePending, Reason: "None"}, "sbatch accepted it")
	case s.Refused && s.Retry && d.row.SbatchCount > 1: // an earlier sbatch may have made a job
		d.row.SubmittedAt, d.row.SbatchCount = time.Time{}, d.row.SbatchCount-1
		d.tryLater(temporaryRefusal(s.Words))
	case s.Refused && s.Retry:
		tries := d.row.FailedTries + 1
		d.sendBack(temporaryRefusal(s.Words))
		d.row.FailedTries, d.row.DueAt = tries, d.now.Add(pauseAfter(tries))
	case s.Refused && d.row.SbatchCount > 1:
		d.row.RepeatRefusal, d.row.QueueTrouble = s.Words, d.row.Exclude != "" || d.refusedForQueue(s)
		d.row.Reason = "Slurm refused the submission that was repeated: fencing the attempt, since the first one may have made a job"
	case s.Refused && d.row.Exclude != "": // the bundle may need one of these nodes, or Slurm does not know one
		d.sendBack(refusedWithout(d.row.Exclude) + ": " + s.Words)
		d.row.AnyNode = true
	case s.Refused && d.refusedForQueue(s):
		d.sendBack(d.refusedFor(s))
		if !s.OfQueue {
			d.row.DueAt = d.now.Add(min(refusedPause<<(d.row.RefusedAlone-1), longestRefusedPause))
		}
	case s.Refused:
		d.row.NoJobSince = d.now
		d.endRefused(s.Words)
	default:
		d.row.UnclearCount++
		d.row.LastFailure = s.Words
		d.row.Reason = unclearAnswer(s.Words)
		d.decideBy(d.row.SubmittedAt.Add(d.policy.SubmitGrace))
	}
}

// refusedWithout returns the reason of a row whose job Slurm refuses if these nodes are excluded.
func refusedWithout(nodes string) string {
	return "Slurm refused the job without the nodes " + nodes + ", so it may run on any"
}

// temporaryRefusal returns the row's reason after a temporary refusal.
func temporaryRefusal(words string) string { return "Slurm does not take the job now: " + words }

// unclearAnswer returns the row's reason while it is not known whether sbatch made a job.
func unclearAnswer(words string) string {
	return "sbatch gave no clear answer (" + words + "): looking for the job by its name"
}

// sendBack makes the row wait for its turn to be submitted again (Batch). The attempt has made no job, so
// the next one has the same number.
func (d *decision) sendBack(reason string) {
	number := d.row.Attempt.Number - 1
	d.enter(Staging, reason)
	d.row.LastFailure = reason
	d.row.Attempt = Attempt{Number: number}
	d.news.Observation, d.news.Accounting, d.news.Submitted, d.news.Submission = nil, nil, nil, nil
}

// refusedForQueue reports whether Slurm's refusal does not decide about the bundle yet. There are three cases:
//
//   - Slurm accepts no job of the queue. The bundle waits at most as long as for an outage.
//   - Slurm accepts the queue's smallest job, but its refusal is about the site, or about nodes of which one
//     is large enough. The site's trouble may just be over, or Slurm may be wrong: 22.05.5 to 22.05.8
//     sometimes refuse good requests (SchedMD's bug 15857). The bundle is tried a few times.
//   - The refusal is about the site, and the site's table gives the owner an account, a QOS and so on of their own. The
//     table may be wrong, which is not the bundle's fault. The bundle waits at most as long as for an outage.
//
// A bundle that Slurm refuses repeatedly while it accepts other jobs of the queue is at fault itself: a
// plugin of the site may have a rule about it.
func (d *decision) refusedForQueue(s SbatchAnswer) bool {
	r := &d.row
	switch {
	case !s.OfQueue && !s.OfSite && !d.fitsANode():
		return false
	case !s.OfQueue:
		r.RefusedAlone = min(r.RefusedAlone+1, mostRefusedAlone)
	case d.news.QueueWorked:
		r.RefusedSince = d.now
		r.RefusedAlone++
	}
	r.RefusedSince = cmp.Or(r.RefusedSince, d.now)
	if d.refusedForTable(s) {
		return d.now.Sub(r.RefusedSince) <= d.policy.OutagePatience
	}
	return r.RefusedAlone < mostRefusedAlone && d.now.Sub(r.RefusedSince) <= d.policy.OutagePatience
}

const (
	mostRefusedAlone = 3
	// refusedPause is the pause after the first refusal in the other cases. The next one is twice as long, up to
	// longestRefusedPause.
	refusedPause        = 30 * time.Second
	longestRefusedPause = 2 * time.Minute
)

// refusedForTable reports whether the site's table may be at fault for a refusal.
func (d *decision) refusedForTable(s SbatchAnswer) bool {
	return s.OfSite && !s.OfQueue && d.policy.billing(d.row).String() != ""
}

// refusedFor returns the reason of a row whose refusal does not decide about the bundle.
func (d *decision) refusedFor(s SbatchAnswer) string {
	if s.OfQueue {
		return fmt.Sprintf("Slurm takes no job of queue %s: %s", d.queue.Tag, s.Words)
	}
	if d.refusedForTable(s) {
		return fmt.Sprintf("Slurm refused the job with what the operator's table gives its owner (%s): %s", d.policy.billing(d.row), s.Words)
	}
	return fmt.Sprintf("Slurm refused the job, though it takes others of queue %s: %s", d.queue.Tag, s.Words)
}

// endRefused ends a bundle that Slurm has refused, with a sentence that has Slurm's message and the request.
func (d *decision) endRefused(words string) {
	sentence := d.withSize(fmt.Sprintf("Slurm refused the job: %s. Asked of queue %s: %s.", trimDot(words), d.queue.Tag, d.requested()))
	if d.row.Standalone {
		sentence = codalab.Sentence(words)
	}
	d.endUnbegun(Verdict{Cause: spool.CauseUser, Failure: sentence}, "Slurm refused the submission")
}

// provenAbsent reports whether it is proven that the current submission made no live job, and wants the effects that the
// proof needs. Without an accounting database nothing proves the absence once Slurm may have forgotten the job: the
// attempt is then fenced.
//
// Callers use it only if adoptable found nothing in the same news.
func (d *decision) provenAbsent() bool {
	switch d.policy.absence(&d.row.Asking, d.row.SubmittedAt, d.news.Observation, d.news.Accounting) {
	case absent:
		return true
	case absentFromQueue:
		if d.row.Fenced {
			return true
		}
		d.wantUnlessFailed(QueryAccounting, d.news.AccountingFailure)
	case unprovable:
		if d.row.Fenced {
			return true
		}
		d.fence()
	case notAbsent:
	}
	return false
}
