package plan

import (
	"cmp"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// News is everything that arrived about one row since its last decision. A field is nil or empty if
// nothing of its kind arrived.
type News struct {
	// GiveBack is set when a stand-alone worker gives its runs back to the server. Leave is set too if it
	// does not wait for results any more.
	GiveBack bool `json:",omitempty"`
	Leave    bool `json:",omitempty"`
	// Restaged is set when the server has answered a check-in by which the bundle was given back.
	Restaged bool `json:",omitempty"`
	// Restarted is set in the first news of each row after a start of the bridge.
	Restarted bool
	// Found is a live job of an attempt that is later than the row's.
	Found *Found
	// DiskLow is the reason for which the bridge puts nothing new onto the shared disk (LowWater.Lack, or
	// the disk does not answer), empty if it does, and nil if that is not known.
	DiskLow *string
	// Held is the reason for which the row's queue is held up, empty if it is not, nil if it has not changed.
	Held *string `json:",omitempty"`
	// AtLimit is the row's new AtLimit, nil if it has not changed. Limit is what Slurm tells of the limit for which the job
	// waits, nil if that has not changed.
	AtLimit *string       `json:",omitempty"`
	Limit   *ReachedLimit `json:",omitempty"`
	// QueueWorked is set if Slurm has accepted another job of the queue since it first refused the row's.
	QueueWorked bool `json:",omitempty"`
	// Unanswered is set when a check-in that reported the verdict got no answer: the server may
	// have applied the report, and may have acknowledged it.
	Unanswered bool
	// Messages came from the server, in this order.
	Messages []codalab.Message
	// Observation is the part of the newest snapshot that concerns the submission.
	Observation *Observation
	// Turn is the job's place among the waiting jobs of all users, nil if it was not asked for.
	Turn *sbatch.Turn `json:",omitempty"`
	// Accounting is the accounting database's answer about a submission. AccountingFailure is set if it
	// did not answer.
	Accounting        *Observation
	AccountingFailure string
	// Records are an attempt's records on the shared disk. RecordsFailure is set if the bridge could not
	// read them.
	Records        *Records
	RecordsFailure string

	// The outcomes of effects.
	Claimed   *Claimed
	Staged    *StageEnd
	Carried   *Outcome `json:",omitempty"`
	Prepared  *Outcome
	Submitted *SbatchAnswer
	// Submission is the row's place in the submission that it shares; nil if it has one of its own.
	Submission *Place  `json:",omitempty"`
	Canary     *Canary `json:",omitempty"`
	Fenced     *Fencing
	TimeTold   *TimeTold `json:",omitempty"`
	Stopped    *Stopped  `json:",omitempty"`
	Cancelled  *Outcome
	Collected  *Outcome
	Confirmed  *Confirmation
	Released   *Outcome
	// Progress describes the progress of staging, carrying, preparing or collecting.
	Progress string
	// DataChanged names the data that the bundle used in place and that had changed when the bridge was
	// about to collect its results.
	DataChanged string
	// Remark is a sentence for the bundle's history, for example that a write was lost. No
	// decision depends on it.
	Remark string
}

// Outcome is the end of an effect.
type Outcome struct {
	// Failure is the effect's error in one sentence; empty for a success.
	Failure string
	// Generation is that of the attempt whose specification was written; 0 for other effects.
	Generation int64 `json:",omitempty"`
	// Final is set for a failure that every further try would repeat.
	Final bool
	// Gone is set when the object of the effect no longer exists.
	Gone bool
	// Full is set if a disk or a quota had no room. No request is at fault, and the work goes on once
	// there is room.
	Full bool
	// Held has results that stay where they are: they exceed the rest of their owner's disk quota, or, without a Failure,
	// a user has given their upload up.
	Held *spool.HeldResults `json:",omitempty"`
	// Details are those of a success; empty for none.
	Details string `json:"Done,omitempty"`
	// Outage is set for a failure that is no fault of the bundle: the server, a registry, Slurm or
	// the disk is unreachable, and will come back.
	Outage bool
	// After is the pause that the server or the registry asked for when it refused; 0 if it named none.
	After time.Duration `json:",omitempty"`
}

// Claimed is the server's answer to a claim.
type Claimed struct {
	Outcome
	// Accepted is set if the server has given the bundle to the bridge. It has no meaning with a failure.
	Accepted bool
	// OwnerName is the name of the bundle's owner, if the server's offer did not have it; empty if the server has no
	// such user.
	OwnerName string `json:",omitempty"`
	// Refusal is Slurm's refusal of a request that is larger than every node of the queue; empty if Slurm
	// accepts the request, or was not asked.
	Refusal string `json:",omitempty"`
}

// StageEnd is the outcome of staging.
type StageEnd struct {
	Outcome
	Inputs spool.Inputs
}

// SbatchAnswer is the outcome of one sbatch.
type SbatchAnswer struct {
	// Attempt is the number of the submitted attempt.
	Attempt int
	// Job is the id of the job or the array; 0 if the answer had none.
	Job sbatch.JobID
	// Refused is set if it is certain that no job of the submission will run. Retry is set as well if a
	// later try may succeed. Words is Slurm's message.
	Refused, Retry bool
	Words          string
	// OfSite is set if the message is about the site or the queue's configuration, not about the request.
	// OfQueue is set if Slurm refuses the queue's smallest job too (package canary).
	OfSite  bool `json:",omitempty"`
	OfQueue bool `json:",omitempty"`
}

// Canary says whether Slurm accepts the smallest job of a queue (package canary).
type Canary struct {
	// Failure is the error of a question that Slurm did not answer; empty if it answered.
	Failure string `json:",omitempty"`
	// Refusal is Slurm's reason to accept no job of the queue; empty if it accepts one.
	Refusal string `json:",omitempty"`
	// SiteChanges are the changes of the site to the row's job (Policy.SiteChanges).
	SiteChanges string `json:",omitempty"`
}

// Fencing is the outcome of fencing an attempt.
type Fencing struct {
	Attempt int
	// Started is the attempt's started record after the fencing.
	Started spool.Started `json:"Standing"`
	// Failure is the error of reading the record; empty for none. Gone is set if the attempt's directory
	// is no longer on the disk.
	Failure string
	Gone    bool
}

// TimeTold is the outcome of telling the worker of an attempt its job's time limit.
type TimeTold struct {
	Attempt int
	Limit   time.Duration
	// Failure is the error in one sentence; empty for a success.
	Failure string
}

// Stopped is the outcome of telling the worker of a pack to end an attempt.
type Stopped struct {
	Attempt int
	// Failure is the error in one sentence; empty for a success.
	Failure string
}

// Confirmation is the server's answer to Confirm.
type Confirmation struct {
	Outcome
	// Asked is the time at which the bridge sent the question.
	Asked time.Time `json:",omitzero"`
	// State is the bundle's state. It has no meaning with a failure.
	State codalab.State
	// Here is set if the server shows this bridge's worker id, or this host and the time of this claim. Then
	// this bridge was the last to claim or report the bundle.
	Here bool `json:",omitempty"`
	// Carried is set if a check-in that reports the bundle waited for its answer during the question. The
	// server may have answered the question first and applied the report then.
	Carried bool `json:",omitempty"`
	// UploadFailure is the server's reason for throwing the results away; empty if it has not.
	UploadFailure string `json:"Lost,omitempty"`
}

// Observation is the part of one complete answer of Slurm that concerns one submission.
type Observation struct {
	SubmissionName SubmissionName
	// Job is the id of the row's job at that time; 0 for none.
	Job sbatch.JobID `json:",omitzero"`
	// Asked is the time at which the bridge sent the question.
	Asked time.Time
	// Jobs are the jobs of that name and the job of that id, sorted by id.
	Jobs []sbatch.Job
}

// Found is a job of a bundle whose row does not know the submission. The ledger was then restored from a
// copy that is older than the submission.
type Found struct {
	Stamp Stamp
	Job   sbatch.Job
	// Shared is set for a task of an array, and for a member of a pack, for which Pack is set, too. The stamp is that of the member with this
	// index.
	Shared bool `json:",omitempty"`
	Pack   bool `json:",omitempty"`
	Index  int  `json:",omitempty"`
}

// Records are an attempt's records, read from the shared disk. A record that is missing, or could not
// be read, is no evidence.
type Records struct {
	Attempt int
	// Read is the time at which the reading began; zero if not all records could be read, so that a
	// record that is nil here may exist on the disk.
	Read time.Time
	spool.Records
}

// AddRecords merges another reading of an attempt's records. Readings may arrive out of order: a record
// that either reading saw exists, and the later of two attempts counts.
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
