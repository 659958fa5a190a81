package plan

import (
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Phase is a row's place in the life of its bundle.
type Phase string

// The phases of a row.
const (
	// Claiming: the server offered the bundle, and has not given it to this bridge yet.
	Claiming Phase = "claiming"
	// Staging: image and dependencies are being staged; or they are ready, and the row waits
	// for its submission.
	Staging Phase = "staging"
	// Submitting: sbatch will run, runs, or its answer is unknown.
	Submitting Phase = "submitting"
	// Queued: Slurm has the job, and the attempt has not begun.
	Queued Phase = "queued"
	// Running: the attempt has begun.
	Running Phase = "running"
	// Stopping: the job has to end.
	Stopping Phase = "stopping"
	// Collecting: the attempt has ended; its results go to the server.
	Collecting Phase = "collecting"
	// Finalizing: the verdict is reported, and the server has to acknowledge it.
	Finalizing Phase = "finalizing"
	// Done: acknowledged, or never this bridge's; files are kept for a while.
	Done Phase = "done"
)

// Phases lists the phases in their order.
func Phases() []Phase {
	return []Phase{Claiming, Staging, Submitting, Queued, Running, Stopping, Collecting, Finalizing, Done}
}

// SubmissionName names a submission. It is the job's name in Slurm, and unique.
type SubmissionName string

// Row is one bundle of the bridge's. It is a value, which a ledger keeps. The values behind its
// pointers never change, so rows may be copied, shared and compared with ==.
type Row struct {
	// Bundle is the bundle's UUID, the row's key.
	Bundle string `json:"bundle"`
	// Version counts the row's decisions; the ledger compares and swaps it.
	Version int64 `json:"-"`
	// Queue names the configured queue that claimed the bundle.
	Queue string `json:"queue"`
	// Run is what the server asked for. It is never nil.
	Run       *codalab.RunBundle `json:"run"`
	Resources codalab.Resources  `json:"resources"`
	// Claimed is when the server first offered the bundle. Offered is when it last repeated the
	// offer during the claim; zero if it did not.
	Claimed time.Time `json:"claimed"`
	Offered time.Time `json:"offered,omitzero"`

	Phase Phase `json:"phase"`
	// Since is when the phase began.
	Since time.Time `json:"since"`
	// Reason says in plain words why the last decision was made.
	Reason string `json:"reason"`
	// Decided is when the phase, the attempt or the reason last changed.
	Decided time.Time `json:"decided,omitzero"`
	// Due is when to decide again without news; zero for never.
	Due time.Time `json:"due,omitzero"`
	// Tries counts the failed tries of the phase's work.
	Tries int `json:"tries,omitempty"`
	// Trouble is why the last try failed.
	Trouble string `json:"trouble,omitempty"`
	// Troubled is since when staging or collecting has failed, in this life of the bridge; zero
	// while it does not. Outage says whether staging last failed for an outage. Turned is since
	// when it has failed for that kind of reason, if it failed for the other kind before.
	Troubled time.Time `json:"troubled,omitzero"`
	Turned   time.Time `json:"turned,omitzero"`
	Outage   bool      `json:"outage,omitempty"`

	// Low is why a row without its inputs waits for room on the shared disk; empty while it
	// does not.
	Low string `json:"low,omitempty"`

	// Staged is what staging has made ready; nil before.
	Staged *spool.Inputs `json:"staged,omitempty"`

	// Changed says, in sentences for the researcher, which data that was used in place changed
	// during the run; empty if none did.
	Changed string `json:"changed,omitempty"`

	// Attempt counts the row's attempts; the current one has this number.
	Attempt int `json:"attempt"`
	// SubmissionName and Index name the current attempt in Slurm.
	SubmissionName SubmissionName `json:"mark,omitempty"`
	Index          int            `json:"index,omitempty"`
	// Generation numbers the bridge's submissions: each attempt of each row has a higher one
	// than all before. The job's comment has it, so that a bridge sees from a job that its
	// ledger is older than the job.
	Generation int64 `json:"generation,omitempty"`
	// Prepared is set once the job's specification is on the shared disk.
	Prepared bool `json:"prepared,omitempty"`
	// Submitted is when sbatch was last started for SubmissionName; zero before.
	Submitted time.Time `json:"submitted,omitzero"`
	// Sbatches counts how often sbatch was wanted for SubmissionName.
	Sbatches int `json:"sbatches,omitempty"`
	// Refused is Slurm's refusal of a repeated submission: an earlier one may have made a job
	// all the same.
	Refused string `json:"refused,omitempty"`
	// Unclear counts the unclear answers of sbatch for SubmissionName.
	Unclear int `json:"unclear,omitempty"`
	// Job is the job, as Slurm last showed it; its ID is 0 before it has one.
	Job sbatch.Job `json:"job,omitzero"`
	// Absent is when the snapshot was asked for that proves, as far as the queue can, that the
	// submission made no job; zero while there is none.
	Absent time.Time `json:"absent,omitzero"`
	// Ended is when Slurm was first seen without a live job for the attempt; zero while it has
	// one.
	Ended time.Time `json:"ended,omitzero"`
	// Looked is when the attempt's records were last read since Ended. LastWords is the end
	// of the batch script's output. Both are empty before.
	Looked    time.Time `json:"looked,omitzero"`
	LastWords string    `json:"last_words,omitempty"`
	// Stuck is since when Slurm has given a reason for which the job can never start; zero
	// while it gives none.
	Stuck time.Time `json:"stuck,omitzero"`

	// Begun is the current attempt's start; nil before.
	Begun *spool.Started `json:"begun,omitempty"`
	// Exit is the worker's record of the current attempt's end; nil before.
	Exit *spool.Exit `json:"exit,omitempty"`
	// Status is the worker's last status. It is not saved for its own sake: a restarted bridge
	// reads it again.
	Status *spool.Status `json:"-"`
	// Progress says how far staging or collecting is. It is not saved either.
	Progress string `json:"-"`

	// Stop is the verdict to be reached instead of the run's own: a kill, or a job that can
	// never start.
	Stop *Verdict `json:"stop,omitempty"`
	// Cancelled is when scancel last succeeded; zero before.
	Cancelled time.Time `json:"cancelled,omitzero"`
	// Fenced is set when the current attempt can never begin.
	Fenced bool `json:"closed,omitempty"`
	// Gone is since when the current attempt's records have been missing from the disk, as
	// fencing found; zero while they are there. A fenced attempt whose records are gone cannot
	// begin, but it may have begun.
	Gone time.Time `json:"gone,omitzero"`
	// Verdict is how the bundle ended; nil before.
	Verdict *Verdict `json:"verdict,omitempty"`
	// Undelivered is set once the bridge has given up delivering the results.
	Undelivered bool `json:"undelivered,omitempty"`
	// Dropped is set for a row whose bundle turned out not to be this bridge's. It is not
	// reported.
	Dropped bool `json:"dropped,omitempty"`
	// Releasing is set when the bundle's files are being removed.
	Releasing bool `json:"releasing,omitempty"`
	// Reports counts how often the verdict was to be reported. Each report is in one check-in:
	// see package bridge, "Reports".
	Reports int `json:"reports,omitempty"`
	// KeepUntil is when the files of a row that is done may be removed.
	KeepUntil time.Time `json:"keep_until,omitzero"`
	// Times are the beginnings of the stages that the server keeps.
	Times Times `json:"times"`
}

// Times are when the stages of a run began; zero for a stage that has not begun.
type Times struct {
	Preparing  time.Time `json:"preparing,omitzero"`
	Running    time.Time `json:"running,omitzero"`
	CleaningUp time.Time `json:"cleaning_up,omitzero"`
	Uploading  time.Time `json:"uploading,omitzero"`
	Finalizing time.Time `json:"finalizing,omitzero"`
}

// Verdict is how a bundle ended.
type Verdict struct {
	Cause spool.Cause `json:"cause"`
	// ExitCode is the command's exit status; nil if it has none.
	ExitCode *int `json:"exit_code,omitempty"`
	// Failure is one sentence for the researcher; empty for a success, and if the exit
	// status says all.
	Failure string `json:"failure,omitempty"`
}

// NewRow is the row of a bundle that the server has just offered to a queue.
func NewRow(now time.Time, queue string, m codalab.Message) Row {
	r := Row{
		Bundle: m.UUID, Queue: queue, Run: &codalab.RunBundle{}, Claimed: now,
		Phase: Claiming, Since: now, Reason: "the server offered the bundle", Decided: now,
	}
	if m.Bundle != nil {
		r.Bundle, r.Run = m.Bundle.UUID, m.Bundle
	}
	if m.Resources != nil {
		r.Resources = *m.Resources
	}
	return r
}

// InFlight reports whether the row has, or may have, a job in Slurm.
func (r Row) InFlight() bool {
	switch r.Phase {
	case Submitting, Queued, Running, Stopping:
		return true
	case Claiming, Staging, Collecting, Finalizing, Done:
	}
	return false
}

// Same reports whether a ledger keeps the same of two rows, apart from their versions.
func (r Row) Same(other Row) bool { return r.kept() == other.kept() }

// kept is what a ledger keeps of the row.
func (r Row) kept() Row {
	r.Version, r.Status, r.Progress = 0, nil, ""
	return r
}

// WaitsForRoom reports whether the row lacks only a place in Slurm.
func (r Row) WaitsForRoom(now time.Time) bool {
	return r.Phase == Staging && r.Staged != nil && r.Stop == nil && !r.Due.After(now)
}
