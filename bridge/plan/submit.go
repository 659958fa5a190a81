package plan

import (
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// submitting: sbatch is wanted once. When its answer is lost the job is looked
// for by its mark, and sbatch is wanted again only when there is none.
func (d *decision) submitting() {
	if d.row.Begun != nil {
		d.enter(Running, "the attempt has begun")
		return
	}
	if job, ok := adoptable(d.news.Observation); ok {
		d.adopt(job, "found in the queue by its name")
		return
	}
	if job, ok := adoptable(d.news.Accounting); ok {
		d.adopt(job, "found in the accounts by its name")
		return
	}
	if s := d.news.Submitted; s != nil && s.Attempt == d.row.Attempt {
		d.answered(*s)
	}
	switch {
	case d.row.Phase != Submitting:
	case d.row.Stop != nil:
		d.stopUnsubmitted()
	case d.row.Refused != "" && d.row.Fenced:
		d.finish(Verdict{Cause: spool.CauseUser, Failure: d.refused(d.row.Refused)}, "Slurm refused the submission")
	case d.row.Refused != "":
		d.fence()
	case d.row.Submitted.IsZero() && !d.row.Prepared:
		d.prepare()
	case d.row.Submitted.IsZero():
		if !d.waiting() {
			d.submit(d.row.Reason)
		}
	case d.closingFailed() != "" && !d.row.Fenced:
		d.fence()
	case !d.absent():
	case d.row.Fenced:
		d.concluded(platform("Slurm gave no clear answer to the submission, and has no such job: %s", sentence(d.row.Trouble)))
	case d.row.Unclear >= unclearAnswers:
		d.fence()
	default:
		d.submit("sbatch's answer was lost and there is no such job: submitted again under the same name")
	}
}

// prepare has what the job reads written to the shared disk, and then the job
// submitted.
func (d *decision) prepare() {
	switch p := d.news.Prepared; {
	case p == nil:
		d.ask(Prepare, "")
	case p.Failure != "":
		d.again(p.Failure)
	default:
		d.row.Prepared = true
		d.row.Tries, d.row.Trouble = 0, ""
		d.submit(attemptGoes(d.row.Attempt))
	}
}

// unclearAnswers is after how many answers of sbatch that say neither yes nor
// no, each followed by the proof that there is no job, the attempt is given
// up: a site's own wrapper may refuse in words that nobody else knows.
const unclearAnswers = 3

// submit wants sbatch. The row is saved with Submitted before it is run.
func (d *decision) submit(reason string) {
	d.row.Submitted, d.row.Absent = d.now, time.Time{}
	d.row.Sbatches++
	d.row.Due = time.Time{}
	d.row.Reason = reason
	d.want(Submit)
}

// adoptable returns the job of a sighting that stands for the submission: not
// the record that a refused submission leaves, and one that lives before one
// that has ended.
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

// ghost says whether a job is what a refused submission leaves: it FAILED and
// was never given a node.
func ghost(j sbatch.Job) bool { return j.State == sbatch.StateFailed && j.Nodes == "" }

func (d *decision) adopt(job sbatch.Job, reason string) {
	d.row.Job, d.row.Absent = job, time.Time{}
	d.enter(Queued, fmt.Sprintf("job %s: %s", job.ID, reason))
}

func (d *decision) answered(s Submission) {
	switch {
	case s.Job != 0:
		d.adopt(sbatch.Job{ID: s.Job, Name: string(d.row.SubmissionName), State: sbatch.StatePending, Reason: "None"}, "sbatch accepted it")
	case s.Refused && s.Retry: // it has made no job
		d.row.Submitted, d.row.Sbatches = time.Time{}, max(d.row.Sbatches-1, 0)
		d.again("Slurm does not take the job now: " + s.Words)
	case s.Refused && d.row.Sbatches > 1:
		d.row.Refused = s.Words
		d.row.Reason = "Slurm refused the submission that was repeated: closing the attempt, in case the first one made a job"
	case s.Refused:
		d.finish(Verdict{Cause: spool.CauseUser, Failure: d.refused(s.Words)}, "Slurm refused the submission")
	default:
		d.row.Unclear++
		d.row.Trouble = s.Words
		d.row.Reason = "sbatch gave no clear answer (" + s.Words + "): looking for the job by its name"
		d.wake(d.row.Submitted.Add(d.policy.SubmitGrace))
	}
}

// refused is the sentence for a refused submission: Slurm's words and what was
// asked for.
func (d *decision) refused(words string) string {
	return fmt.Sprintf("Slurm refused the job: %s. Asked of queue %s: %s.", trimDot(words), d.queue.Tag, d.asked())
}

// stopUnsubmitted: before sbatch was begun there is nothing to stop; after it
// there may be a job.
func (d *decision) stopUnsubmitted() {
	if d.row.Submitted.IsZero() {
		d.finish(*d.row.Stop, "stopped before it was submitted: "+d.row.Stop.Failure)
		return
	}
	d.enter(Stopping, "to be stopped: "+d.row.Stop.Failure)
}

// absent says whether it is proven that the current submission made no job
// that lives. A whole snapshot must lack it that was asked for later than the
// longest life of an sbatch after its begin; then the accounting database must
// lack it too. Without a database, a snapshot younger than what Slurm keeps in
// sight is enough, and after that nothing proves it: the attempt is closed.
// What is missing for the proof is asked for.
//
// It is asked only where adoptable found nothing in the same news.
func (d *decision) absent() bool {
	s := d.news.Observation
	if s != nil && d.row.Absent.IsZero() && s.Asked.After(d.row.Submitted.Add(d.policy.SubmitGrace)) {
		d.row.Absent = s.Asked
	}
	if d.row.Absent.IsZero() {
		return false
	}
	switch a := d.news.Accounting; {
	case d.row.Fenced:
		return true
	case a != nil && !a.Asked.Before(d.row.Absent):
		return true
	case d.policy.Accounting:
		d.ask(QueryAccounting, d.news.AccountingFailure)
	case d.row.Absent.Before(d.row.Submitted.Add(d.policy.RecordAge)):
		return true
	default:
		d.fence()
	}
	return false
}
