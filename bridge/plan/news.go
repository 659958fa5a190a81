package plan

import (
	"cmp"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// News is what arrived about one row since it was last decided. Fields are
// nil, or empty, for what did not.
type News struct {
	// Restarted is set in the first news of each row after a start of the
	// bridge.
	Restarted bool
	// Found is a live job of a later attempt than the row knows of.
	Found *Found
	// Low is why nothing new may be put onto the shared disk (LowWater.Low),
	// empty where it may; nil where nothing new is known of that.
	Low *string
	// Unanswered is set when a check-in that reported the verdict got no answer:
	// nobody knows whether the server has taken the report, or has acknowledged it.
	Unanswered bool
	// Messages came from the server, in this order.
	Messages []codalab.Message
	// Observation is what the newest whole snapshot shows of a mark.
	Observation *Observation `json:"Sighting"`
	// Accounting is what the accounting database knows of a mark, and
	// AccountFailure why it did not answer.
	Accounting        *Observation `json:"Accounted"`
	AccountingFailure string       `json:"AccountFailure"`
	// Records are an attempt's, as the disk shows them, and LookFailure is why
	// they could not be read.
	Records     *Records
	LookFailure string

	// The outcomes of effects.
	Claimed   *Claimed
	Staged    *StageEnd
	Prepared  *Outcome
	Submitted *Submission
	Fenced    *Fencing `json:"Closed"`
	Cancelled *Outcome
	Collected *Outcome
	Confirmed *Confirmation
	Released  *Outcome
	// Progress is how far staging, or collecting, is.
	Progress string
	// Changed is what was found to have changed of the data that the bundle
	// used in place, when its results were about to be collected.
	Changed string
	// Remark is a sentence for the bundle's history, for example that a write was
	// lost. No decision depends on it.
	Remark string
}

// Outcome is how an effect ended: done, or why not.
type Outcome struct {
	// Failure is empty when it was done.
	Failure string
	// Final is set for a failure that would only repeat itself.
	Final bool
	// Gone is set when what the effect was for does not exist any more.
	Gone bool
	// Full is set when there was no room on a disk, or in a quota: nobody's
	// request is to blame, and it goes on when there is room.
	Full bool
	// Done says what was done, where there is more to say than that it was.
	Done string `json:",omitempty"`
	// Outage is set for a failure that says nothing of the bundle: the server, a
	// registry or the disk is away, and comes back.
	Outage bool
	// After is how long from now whoever refused wants to be left alone; 0 where
	// it did not say.
	After time.Duration `json:",omitempty"`
}

// Claimed is the server's answer to a claim.
type Claimed struct {
	Outcome
	// Accepted is the answer; meaningless with a failure.
	Accepted bool
}

// StageEnd is how staging ended.
type StageEnd struct {
	Outcome
	Inputs spool.Inputs
}

// Submission is sbatch's answer.
type Submission struct {
	// Attempt is the attempt that was submitted.
	Attempt int
	// Job is the job's id; 0 when there was none in the answer.
	Job sbatch.JobID
	// Refused is set when Slurm surely made no job that runs; Retry when it
	// may answer otherwise later. Words are Slurm's.
	Refused, Retry bool
	Words          string
}

// Fencing is the answer to an attempt's closing.
type Fencing struct {
	Attempt int
	// Standing is the record that stands in the attempt's started.
	Standing spool.Started
	// Failure is why it is not known which record stands. Gone is set when that
	// is because the attempt's directory is not on the disk any more.
	Failure string
	Gone    bool
}

// Confirmation is the server's answer to Confirm.
type Confirmation struct {
	Outcome
	// Asked is when the question was sent.
	Asked time.Time `json:",omitzero"`
	// State is the bundle's state; meaningless with a failure.
	State codalab.State
	// Here is set when the server shows this bridge's identity, or this host and the
	// time of this claim: the last to claim or report the bundle was this bridge.
	Here bool `json:",omitempty"`
	// Carried is set when a check-in that reports the bundle was unanswered while the
	// server was asked: the server may have looked first and applied the report then.
	Carried bool `json:",omitempty"`
	// Lost is why the server has thrown the results away; empty where it has not.
	Lost string `json:",omitempty"`
}

// Observation is what a whole answer of Slurm showed of one mark.
type Observation struct {
	SubmissionName SubmissionName `json:"Mark"`
	// Asked is when the question was sent.
	Asked time.Time
	// Jobs are the jobs of that name, in the order of their ids.
	Jobs []sbatch.Job
}

// Found is a job of a bundle that its row has no submission for: the ledger was
// put back from an old copy, which did not know yet that it was submitted.
type Found struct {
	Stamp Stamp
	Job   sbatch.Job
}

// Records are an attempt's records as read from the shared disk. What is not
// there, or could not be read, says nothing.
type Records struct {
	Attempt int
	// Read is when their reading began; zero when not all could be read, so
	// that what is nil may be there.
	Read time.Time
	spool.Records
}

// AddRecords takes in another reading of an attempt's records. Two readings
// may overtake one another: what either saw was there, and of two attempts
// the later one counts.
func (n *News) AddRecords(rec Records) {
	old := n.Records
	switch {
	case old == nil:
	case old.Attempt > rec.Attempt:
		return
	case old.Attempt == rec.Attempt:
		rec.Started = cmp.Or(rec.Started, old.Started)
		rec.Exit = cmp.Or(rec.Exit, old.Exit)
		rec.Status = cmp.Or(rec.Status, old.Status)
		rec.Output = cmp.Or(rec.Output, old.Output)
		if old.Read.After(rec.Read) {
			rec.Read = old.Read
		}
	}
	n.Records = &rec
}

// AddRemark adds a remark to those that there are.
func (n *News) AddRemark(remark string) {
	if n.Remark != "" {
		remark = n.Remark + "; " + remark
	}
	n.Remark = remark
}
