package plan

import (
	"cmp"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// News is what arrived about one row since its last decision. A field is nil or empty if
// nothing of its kind arrived.
type News struct {
	// GiveBack is set when a worker that stops gives its runs back to the server. Leave is set as well
	// when it can wait for no results any more.
	GiveBack bool `json:",omitempty"`
	Leave    bool `json:",omitempty"`
	// Restaged is set when the server has answered a check-in by which the bundle was given back.
	Restaged bool `json:",omitempty"`
	// Restarted is set in the first news of each row after a start of the bridge.
	Restarted bool
	// Found is a live job of a later attempt than the row knows of.
	Found *Found
	// DiskLow is why nothing new may be put onto the shared disk (LowWater.Low, or the disk does not answer), empty if it may,
	// and nil if that is not known.
	DiskLow *string
	// Held is why the row's queue is held up, empty if it is not, and nil if that has not changed.
	Held *string `json:",omitempty"`
	// QueueWorked is set if Slurm has taken another job of the queue since it began to refuse the row's.
	QueueWorked bool `json:",omitempty"`
	// Unanswered is set when a check-in that reported the verdict got no answer: the server may
	// have applied the report, and may have acknowledged it.
	Unanswered bool
	// Messages came from the server, in this order.
	Messages []codalab.Message
	// Observation is what the newest whole snapshot shows of a submission.
	Observation *Observation
	// Accounting is what the accounting database knows of a submission. AccountingFailure is
	// why it did not answer.
	Accounting        *Observation
	AccountingFailure string
	// Records are an attempt's, as the disk shows them. RecordsFailure is why they could not be
	// read.
	Records        *Records
	RecordsFailure string

	// The outcomes of effects.
	Claimed   *Claimed
	Staged    *StageEnd
	Prepared  *Outcome
	Submitted *Submission
	Canary    *Canary `json:",omitempty"`
	Fenced    *Fencing
	Cancelled *Outcome
	Collected *Outcome
	Confirmed *Confirmation
	Released  *Outcome
	// Progress is how far staging, preparing or collecting is.
	Progress string
	// DataChanged says which of the data that the bundle used in place had changed when its results
	// were about to be collected.
	DataChanged string
	// Remark is a sentence for the bundle's history, for example that a write was lost. No
	// decision depends on it.
	Remark string
}

// Outcome is how an effect ended.
type Outcome struct {
	// Failure is why the effect failed; empty for a success.
	Failure string
	// Final is set for a failure that every further try would repeat.
	Final bool
	// Gone is set when the object of the effect no longer exists.
	Gone bool
	// Full is set when a disk or a quota had no room. No request is to blame, and the work
	// goes on when there is room.
	Full bool
	// Done gives details of a success; empty for none.
	Done string `json:",omitempty"`
	// Outage is set for a failure that is no fault of the bundle: the server, a registry, Slurm or
	// the disk is unreachable, and will come back.
	Outage bool
	// After is how long from now the server or registry that refused asks for no further
	// request; 0 if it did not say.
	After time.Duration `json:",omitempty"`
}

// Claimed is the server's answer to a claim.
type Claimed struct {
	Outcome
	// Accepted is the answer. It has no meaning with a failure.
	Accepted bool
	// Refusal is Slurm's refusal of a request that is larger than all nodes of the queue; empty if Slurm
	// takes the request, or was not asked.
	Refusal string `json:",omitempty"`
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
	// Job is the job's id; 0 if the answer had none.
	Job sbatch.JobID
	// Refused is set if it is certain that no job of the submission will run, Retry when a later try
	// may succeed. Words are Slurm's.
	Refused, Retry bool
	Words          string
	// OfSite is set if the words are about the site or the queue's configuration, and not about the
	// request. OfQueue is set if Slurm refuses the queue's smallest job too (package canary).
	OfSite  bool `json:",omitempty"`
	OfQueue bool `json:",omitempty"`
}

// Canary is Slurm's answer to the question whether it takes the smallest job of a queue (package canary).
type Canary struct {
	// Failure is why there is no answer; empty if there is one.
	Failure string `json:",omitempty"`
	// Refusal is why Slurm takes no job of the queue; empty if it takes one.
	Refusal string `json:",omitempty"`
}

// Fencing is the outcome of fencing an attempt.
type Fencing struct {
	Attempt int
	// Standing is the record in the attempt's started.
	Standing spool.Started
	// Failure is why the record could not be read. Gone is set if the reason is that
	// the attempt's directory is no longer on the disk.
	Failure string
	Gone    bool
}

// Confirmation is the server's answer to Confirm.
type Confirmation struct {
	Outcome
	// Asked is when the question was sent.
	Asked time.Time `json:",omitzero"`
	// State is the bundle's state. It has no meaning with a failure.
	State codalab.State
	// Here is set when the server shows this bridge's identity, or this host and the
	// time of this claim: the last to claim or report the bundle was this bridge.
	Here bool `json:",omitempty"`
	// Carried is set when a check-in that reports the bundle was unanswered meanwhile: the
	// server may have answered this question first and applied the report then.
	Carried bool `json:",omitempty"`
	// Lost is why the server has thrown the results away; empty if it has not.
	Lost string `json:",omitempty"`
}

// Observation is what a whole answer of Slurm showed of one submission.
type Observation struct {
	SubmissionName SubmissionName
	// Job is the id of the row's job at that time; 0 for none.
	Job sbatch.JobID `json:",omitzero"`
	// Asked is when the question was sent.
	Asked time.Time
	// Jobs are the jobs of that name and the job of that id, in the order of their ids.
	Jobs []sbatch.Job
}

// Found is a job of a bundle whose row knows of no such submission: the ledger was restored
// from a copy that is older than the submission.
type Found struct {
	Stamp Stamp
	Job   sbatch.Job
}

// Records are an attempt's records as read from the shared disk. A record that is missing,
// or could not be read, is no evidence.
type Records struct {
	Attempt int
	// Read is when their reading began; zero if not all could be read, so that a record
	// that is nil may exist.
	Read time.Time
	spool.Records
}

// AddRecords merges another reading of an attempt's records. Readings may overtake one
// another: a record that either of them saw exists, and of two attempts the later one counts.
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

// AddRemark appends a remark to the earlier ones.
func (n *News) AddRemark(remark string) {
	if n.Remark != "" {
		remark = n.Remark + "; " + remark
	}
	n.Remark = remark
}
