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

// Row is one bundle that the bridge handles. It is a value, which a ledger keeps. The values behind its
// pointers never change, so rows may be copied, shared and compared with ==.
type Row struct {
	// Bundle is the bundle's UUID, the row's key.
	Bundle string `json:"bundle"`
	// Version counts the row's decisions; the ledger compares and swaps it.
	Version int64 `json:"-"`
	// Queue names the configured queue that claimed the bundle.
	Queue string `json:"queue"`
	// Run is what the server asked for, with as much of the metadata as the bridge reads: the whole of it
	// would take more memory than all else of the row. It is never nil.
	Run       *codalab.RunBundle `json:"run"`
	Resources codalab.Resources  `json:"resources"`
	// Standalone is set if the bridge is a stand-alone worker, whose jobs are processes of its own host.
	Standalone bool `json:"standalone,omitempty"`
	// OfferedAt is when the server first offered the bundle. ReofferedAt is when it last repeated
	// the offer during the claim; zero if it did not.
	OfferedAt   time.Time `json:"offered_at"`
	ReofferedAt time.Time `json:"reoffered_at,omitzero"`

	Phase Phase `json:"phase"`
	// PhaseSince is when the phase began.
	PhaseSince time.Time `json:"phase_since"`
	// Reason says in plain words why the last decision was made.
	Reason string `json:"reason"`
	// DecidedAt is when the phase, the attempt or the reason last changed.
	DecidedAt time.Time `json:"decided_at,omitzero"`
	// DueAt is when to decide again without news; zero for never.
	DueAt time.Time `json:"due_at,omitzero"`
	// Retry is about the failures of the phase's work. A new phase begins without any.
	Retry `json:"retry,omitzero"`
	// DiskLow is why a row without its inputs waits for the shared disk; empty while it
	// does not.
	DiskLow string `json:"disk_low,omitempty"`
	// Progress says how far staging, preparing or collecting is. It is not saved.
	Progress string `json:"-"`

	// Staged is what staging has made ready; nil before.
	Staged *spool.Inputs `json:"staged,omitempty"`
	// DataChanged says, in sentences for the researcher, which data that was used in place changed
	// during the run; empty if none did.
	DataChanged string `json:"data_changed,omitempty"`

	// Held is why the row's queue is held up; empty while it is not.
	Held string `json:"held,omitempty"`
	// RefusedSince is when Slurm began to refuse the bundle for what may be its queue's trouble; zero if
	// it does not. RefusedAlone counts the refusals at which Slurm took other jobs of the queue: one of
	// another bundle, which begins RefusedSince anew, or the queue's smallest.
	RefusedSince time.Time `json:"refused_since,omitzero"`
	RefusedAlone int       `json:"refused_alone,omitempty"`
	// FailedAttempts is how many attempts the platform ended, without those in FailedStarts.
	FailedAttempts int `json:"failed_attempts,omitempty"`
	// FailedStarts is how many attempts ended before their command started. Those that ended while the
	// queue was held up are not counted. StartsFailSince is when the first one ended. FailedNode is the
	// node of the last one, and FailedSurely is set if no bundle can be at fault for that. SickNodes lists the
	// nodes of all, and those that failed before the command started, separated by commas.
	FailedStarts    int       `json:"failed_starts,omitempty"`
	StartsFailSince time.Time `json:"starts_fail_since,omitzero"`
	FailedNode      string    `json:"failed_node,omitempty"`
	FailedSurely    bool      `json:"failed_surely,omitempty"`
	SickNodes       string    `json:"sick_nodes,omitempty"`
	// AnyNode is set if Slurm refused the next attempt with nodes excluded: no other nodes will do.
	AnyNode bool `json:"any_node,omitempty"`

	// Attempt is the current attempt, or the last one while the row waits for the next.
	Attempt `json:"attempt,omitzero"`

	// StopVerdict is the verdict to be reached instead of the run's own: a kill, or a job that can
	// never start.
	StopVerdict *Verdict `json:"stop_verdict,omitempty"`
	// Verdict is how the bundle ended; nil before.
	Verdict *Verdict `json:"verdict,omitempty"`
	// Undelivered is set once the bridge has given up delivering the results.
	Undelivered bool `json:"undelivered,omitempty"`
	// Dropped is set if the bundle turned out to be another worker's, or deleted. The bridge does not
	// report it.
	Dropped bool `json:"dropped,omitempty"`
	// Releasing is set when the bundle's files are being removed.
	Releasing bool `json:"releasing,omitempty"`
	// ReportCount counts how often the verdict was to be reported. Each report is in one check-in:
	// see package bridge, "Reports".
	ReportCount int `json:"report_count,omitempty"`
	// KeepUntil is when the files of a row that is done may be removed.
	KeepUntil time.Time `json:"keep_until,omitzero"`
	// Times are the beginnings of the stages that the server keeps.
	Times Times `json:"times"`
}

// Retry is about the failed tries of a phase's work.
type Retry struct {
	// FailedTries counts them; of a row with its inputs, the refusals for now of its submission, until
	// Slurm takes it. LastFailure is why the last try failed.
	FailedTries int    `json:"failed_tries,omitempty"`
	LastFailure string `json:"last_failure,omitempty"`
	// FailingSince is when staging or collecting began to fail, in this life of the bridge; zero
	// while it does not. FailedByOutage is set if staging last failed for an outage or a full
	// disk. FailureKindSince is when its failures last changed between these and others.
	FailingSince     time.Time `json:"failing_since,omitzero"`
	FailureKindSince time.Time `json:"failure_kind_since,omitzero"`
	FailedByOutage   bool      `json:"failed_by_outage,omitempty"`
}

// Attempt is one attempt of a row: one submission to Slurm, and at most one start of the command.
// The next attempt begins with nothing of the one before.
type Attempt struct {
	// Number counts the row's attempts from 1; 0 before the first.
	Number int `json:"number"`
	// OnDisk names the attempt on the shared disk; empty before the first.
	OnDisk spool.AttemptName `json:"on_disk,omitempty"`
	// SubmissionName names the attempt in Slurm; empty once the attempt was given up for the next.
	SubmissionName SubmissionName `json:"submission_name,omitempty"`
	// Generation numbers the bridge's submissions: each attempt of each row has a higher one
	// than all before. The job's comment has it, so that a bridge sees from a job that its
	// ledger is older than the job.
	Generation int64 `json:"generation,omitempty"`
	// Exclude lists the nodes on which the job must not run, separated by commas.
	Exclude string `json:"exclude,omitempty"`
	// Prepared is set once the job's specification is on the shared disk.
	Prepared bool `json:"prepared,omitempty"`
	// SubmittedAt is when sbatch was last started for SubmissionName; zero before.
	SubmittedAt time.Time `json:"submitted_at,omitzero"`
	// SbatchCount counts how often sbatch was wanted for SubmissionName.
	SbatchCount int `json:"sbatch_count,omitempty"`
	// RepeatRefusal is Slurm's refusal of a repeated submission: an earlier one may have made a job
	// all the same.
	RepeatRefusal string `json:"repeat_refusal,omitempty"`
	// QueueTrouble is set if that refusal, or the reason for which the job can never start, is no verdict
	// on the bundle.
	QueueTrouble bool `json:"queue_trouble,omitempty"`
	// UnclearCount counts the unclear answers of sbatch for SubmissionName.
	UnclearCount int `json:"unclear_count,omitempty"`
	// Job is the job, as Slurm last showed it; its ID is 0 before it has one.
	Job sbatch.Job `json:"job,omitzero"`
	// AbsentAsOf is when the snapshot was requested that, as far as squeue can, proves that the
	// submission made no job; zero while there is none.
	AbsentAsOf time.Time `json:"absent_as_of,omitzero"`
	// NoJobSince is when Slurm was first seen without a live job for the attempt; zero while it has
	// one.
	NoJobSince time.Time `json:"no_job_since,omitzero"`
	// RecordsReadAt is when the attempt's records were last read since NoJobSince. OutputTail is
	// the last line of the batch script's output. Both are empty before.
	RecordsReadAt time.Time `json:"records_read_at,omitzero"`
	OutputTail    string    `json:"output_tail,omitempty"`
	// ImpossibleSince is when Slurm first gave a reason for which the job can never start; zero
	// while it gives none.
	ImpossibleSince time.Time `json:"impossible_since,omitzero"`
	// RevokedSince is when Slurm first showed the job REVOKED, in this life of the bridge; zero while
	// it does not.
	RevokedSince time.Time `json:"revoked_since,omitzero"`
	// CancelledAt is when scancel last ran; zero before.
	CancelledAt time.Time `json:"cancelled_at,omitzero"`
	// Fenced is set when the attempt can never begin.
	Fenced bool `json:"fenced,omitempty"`
	// RecordsGoneSince is when fencing first found the attempt's records missing from the
	// disk; zero while they exist. Such an attempt cannot begin once it is fenced, but it may have
	// begun before.
	RecordsGoneSince time.Time `json:"records_gone_since,omitzero"`

	// Begun is the attempt's start; nil before. RunningAt is when the bridge first saw it.
	Begun     *spool.Started `json:"begun,omitempty"`
	RunningAt time.Time      `json:"running_at,omitzero"`
	// Exit is the worker's record of the attempt's end; nil before.
	Exit *spool.Exit `json:"exit,omitempty"`
	// Status is the worker's last status. It is not saved for its own sake: a restarted bridge
	// reads it again.
	Status *spool.Status `json:"-"`
}

// Times are when the stages of a run began, apart from the running of its command
// (Attempt.RunningAt); zero for a stage that has not begun.
type Times struct {
	Preparing  time.Time `json:"preparing,omitzero"`
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
	// Restage is set if the bundle has not ended: the worker gives it back, and the server is to stage
	// it again. No results are delivered.
	Restage bool `json:"restage,omitempty"`
}

// NewRow is the row of a bundle that the server has just offered to a queue.
func NewRow(now time.Time, queue string, m codalab.Message) Row {
	r := Row{
		Bundle: m.UUID, Queue: queue, Run: &codalab.RunBundle{}, OfferedAt: now,
		Phase: Claiming, PhaseSince: now, Reason: "the server offered the bundle", DecidedAt: now,
	}
	if m.Bundle != nil {
		run := *m.Bundle
		run.Metadata = run.Metadata.Only("created", "exclude_patterns", "request_docker_image", "request_priority")
		r.Bundle, r.Run = run.UUID, &run
	}
	if m.Resources != nil {
		r.Resources = *m.Resources
	}
	return r
}

// InFlight reports whether the row has, or may have, a job in Slurm that can still run the bundle, or
// that has to be ended.
func (r Row) InFlight() bool {
	switch r.Phase {
	case Submitting, Queued, Running, Stopping:
		return true
	case Claiming, Staging, Collecting, Finalizing, Done:
	}
	return r.leavesJob()
}

// leavesJob reports whether the bundle's end is known, no attempt of it can begin, and the job of the
// last one may still wait in Slurm.
func (r Row) leavesJob() bool {
	over := r.Phase == Finalizing || r.Phase == Done
	return over && r.Begun == nil && !r.SubmittedAt.IsZero() && r.NoJobSince.IsZero()
}

// MayHaveWorker reports whether a worker of the attempt is, or was, at work as far as Slurm tells: not
// while the job is pending.
func (r Row) MayHaveWorker() bool {
	switch r.Phase {
	case Submitting:
		return !r.SubmittedAt.IsZero()
	case Queued, Running, Stopping:
		return r.Begun != nil || r.Job.State != sbatch.StatePending || !r.NoJobSince.IsZero()
	case Claiming, Staging, Collecting, Finalizing, Done:
	}
	return false
}

// CancelsJob reports whether the row's job lives and has to end. It does not while nothing but sbatch's
// answer tells the job's id: a site's wrapper may print any number.
func (r Row) CancelsJob() bool {
	job := r.Job
	known := !job.Submitted.IsZero() || r.Begun != nil && r.Begun.Job == job.ID.String()
	lives := r.NoJobSince.IsZero() && !job.State.Ended() && job.State != sbatch.StateCompleting
	return (r.Phase == Stopping || r.leavesJob()) && job.ID != 0 && known && lives
}

// Same reports whether a ledger keeps the same of two rows, apart from their versions.
func (r Row) Same(other Row) bool { return r.kept() == other.kept() }

// kept is what a ledger keeps of the row.
func (r Row) kept() Row {
	r.Version, r.Status, r.Progress = 0, nil, ""
	return r
}

// commandStarted reports whether a record shows that the attempt's command has started.
func (r Row) commandStarted() bool {
	return r.Begun != nil && (r.Status != nil && !r.Status.CommandStarted.IsZero() || r.Exit != nil && !r.Exit.CommandStarted.IsZero())
}

// WaitsForRoom reports whether the row is staged and waits to be submitted.
func (r Row) WaitsForRoom(now time.Time) bool {
	return r.Phase == Staging && r.Staged != nil && r.StopVerdict == nil && !r.DueAt.After(now)
}

// Outline is what a ledger has. Most of its rows are done, and nobody needs all of these at once.
type Outline struct {
	// Rows are those that are not done, in the order of their bundles.
	Rows []Row
	// Done has the queue of each row that is done, by bundle.
	Done map[string]string
}

// ByBundle finds rows by their bundles; nil for a bundle without one.
func ByBundle(rows []Row) func(bundle string) *Row {
	byBundle := make(map[string]*Row, len(rows))
	for i := range rows {
		byBundle[rows[i].Bundle] = &rows[i]
	}
	return func(bundle string) *Row { return byBundle[bundle] }
}
