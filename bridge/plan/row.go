package plan

import (
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Phase is the state of a row.
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
	// Stopping: the bridge ends the row before its command does: the bundle was killed, its job can never
	// start, or the worker gives it back.
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

// Row is one bundle that the bridge handles. It is a value; the ledger stores it. The values behind its
// pointers never change, so rows may be copied, shared and compared with ==.
type Row struct {
	// Bundle is the bundle's UUID, the row's key.
	Bundle string `json:"bundle"`
	// Version counts the row's decisions; the ledger compares and swaps it.
	Version int64 `json:"-"`
	// Queue names the configured queue that claimed the bundle.
	Queue string `json:"queue"`
	// Run is the server's run message, without the metadata that the bridge does not read: all metadata
	// would take more memory than the rest of the row. It is never nil.
	Run       *codalab.RunBundle `json:"run"`
	Resources codalab.Resources  `json:"resources"`
	// Standalone is set if the bridge is a stand-alone worker, whose jobs are processes of its own host.
	Standalone bool `json:"standalone,omitempty"`
	// OfferedAt is the time of the server's first offer. ReofferedAt is the time of the last offer that
	// repeated it during the claim; zero if there was none.
	OfferedAt   time.Time `json:"offered_at"`
	ReofferedAt time.Time `json:"reoffered_at,omitzero"`

	Phase Phase `json:"phase"`
	// PhaseSince is the time at which the row entered the phase.
	PhaseSince time.Time `json:"phase_since"`
	// Reason is the reason for the last decision, in plain words.
	Reason string `json:"reason"`
	// DecidedAt is the time at which the phase, the attempt or the reason last changed.
	DecidedAt time.Time `json:"decided_at,omitzero"`
	// DueAt is the time of the next decision without news; zero for never.
	DueAt time.Time `json:"due_at,omitzero"`
	// Retry counts the failures of the phase's work. A new phase begins with none.
	Retry `json:"retry,omitzero"`
	// DiskLow is the state of the shared disk for which a row without inputs waits; empty while the disk
	// has room.
	DiskLow string `json:"disk_low,omitempty"`
	// Progress describes the progress of staging, preparing or collecting. It is not saved.
	Progress string `json:"-"`

	// Staged has the inputs that staging has made ready; nil before.
	Staged *spool.Inputs `json:"staged,omitempty"`
	// DataChanged names, in sentences for the researcher, the data that was used in place and changed
	// during the run; empty if none did.
	DataChanged string `json:"data_changed,omitempty"`

	// Held is the reason for which the row's queue is held up; empty while it is not.
	Held string `json:"held,omitempty"`
	// AtLimit says of which jobs Slurm has as many as a limit of its QOS and associations allows, so that a row that is
	// staged waits; empty while it has room.
	AtLimit string `json:"at_limit,omitempty"`
	// RefusedSince is the time of Slurm's first refusal that may be the queue's fault; zero if there is
	// none. RefusedAlone counts the refusals of this bundle while Slurm accepted another job of the queue.
	// That job was another bundle's, which sets RefusedSince again, or the queue's smallest.
	RefusedSince time.Time `json:"refused_since,omitzero"`
	RefusedAlone int       `json:"refused_alone,omitempty"`
	// FailedAttempts counts the attempts that the platform ended, without those in FailedStarts.
	FailedAttempts int `json:"failed_attempts,omitempty"`
	// FailedStarts counts the attempts that ended before their command started, without those that ended
	// while the queue was held up. StartsFailSince is the end of the first one. FailedNode is the node of
	// the last one, and FailedSurely is set if no bundle can be at fault for that. SickNodes lists the
	// nodes of all of them, and the nodes that failed before the command started, separated by commas.
	FailedStarts    int       `json:"failed_starts,omitempty"`
	StartsFailSince time.Time `json:"starts_fail_since,omitzero"`
	FailedNode      string    `json:"failed_node,omitempty"`
	FailedSurely    bool      `json:"failed_surely,omitempty"`
	SickNodes       string    `json:"sick_nodes,omitempty"`
	// Tried lists the nodes and the jobs of the earlier attempts, the last ones of many.
	Tried string `json:"tried,omitempty"`
	// Resumption is the state of a bundle that asks to be resumed.
	Resumption Resumption `json:"resumption,omitzero"`
	// MostTogether bounds the members of the next submission, because Slurm refused a larger one; 0 for no such bound.
	MostTogether int `json:"most_together,omitempty"`
	// AnyNode is set if Slurm refused the next attempt with nodes excluded. The attempt then excludes none.
	AnyNode bool `json:"any_node,omitempty"`

	// Attempt is the current attempt, or the last one while the row waits for the next.
	Attempt `json:"attempt,omitzero"`

	// StopVerdict replaces the run's own verdict. It is set when the bridge begins to stop the row: the bundle was
	// killed or deleted, its job can never start, or the worker gives it back.
	StopVerdict *Verdict `json:"stop_verdict,omitempty"`
	// Verdict is the bundle's end; nil before.
	Verdict *Verdict `json:"verdict,omitempty"`
	// Uncollected is set once the bridge has given up collecting the results.
	Uncollected bool `json:"undelivered,omitempty"`
	// GivesUp is set once a user has killed the bundle while its results were uploaded. The end of its output is all that
	// goes to the server then.
	GivesUp bool `json:"gives_up,omitempty"`
	// Room is the wait of results for room in their owner's disk quota; nil while they do not wait.
	Room *RoomWait `json:"room,omitempty"`
	// Dropped is set if the bundle belongs to another worker, or was deleted. The bridge does not report it.
	Dropped bool `json:"dropped,omitempty"`
	// Releasing is set when the bundle's files are being removed.
	Releasing bool `json:"releasing,omitempty"`
	// ReportCount counts the decisions to report the verdict. Each report is in one check-in: package report
	// has the rules.
	ReportCount int `json:"report_count,omitempty"`
	// KeepUntil is the time until which the files of a row that is done stay.
	KeepUntil time.Time `json:"keep_until,omitzero"`
	// Spent is the cost of the row's earlier attempts and of its staging.
	Spent Spent `json:"spent,omitzero"`
	// Times has the start times of the stages that the server stores.
	Times Times `json:"times"`
}

// Retry counts the failed tries of a phase's work.
type Retry struct {
	// FailedTries counts the failed tries. In a row with inputs it counts Slurm's temporary refusals of the
	// submission, until Slurm accepts it. LastFailure is the failure of the last try.
	FailedTries int    `json:"failed_tries,omitempty"`
	LastFailure string `json:"last_failure,omitempty"`
	// FailingSince is the time of the first failure of staging or collecting since the bridge was started;
	// zero while nothing fails. FailedByOutage is set if staging last failed for an outage or a full disk.
	// FailureKindSince is the time of the last change between such failures and others.
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
	// Generation numbers the bridge's submissions: each has a higher one
	// than all before, and attempts that share one have its number. The job's comment has it, so that a bridge sees from a job that its
	// ledger is older than the job.
	Generation int64 `json:"generation,omitempty"`
	// Shared is set if other rows share the submission (Submission). Index is the row's place among its members then, once
	// their list is closed, and its task in the array.
	Shared bool `json:"shared,omitempty"`
	Index  int  `json:"index,omitempty"`
	// Pack is set if they share one job, too (see pack.go).
	Pack bool `json:"pack,omitempty"`
	// Slot is set if the row joins a pack that runs: it is the number of the slot of the pack's list (Joining).
	Slot int `json:"slot,omitempty"`
	// Exclude lists the nodes on which the job must not run, separated by commas.
	Exclude string `json:"exclude,omitempty"`
	// Prepared is set once the job's specification is on the shared disk.
	Prepared bool `json:"prepared,omitempty"`
	// SubmittedAt is the last start of sbatch for SubmissionName; zero before.
	SubmittedAt time.Time `json:"submitted_at,omitzero"`
	// Asking is the state of the attempt's own submission. Of a shared one the row has SbatchCount, and the Submission the rest.
	Asking
	// QueueTrouble is set if the queue may be at fault for that refusal, or for the reason for which the job
	// can never start.
	QueueTrouble bool `json:"queue_trouble,omitempty"`
	// Job is the job, as Slurm last showed it; its ID is 0 before it has one.
	Job sbatch.Job `json:"job,omitzero"`
	// LastNodes are the last nodes that Slurm showed for the job; empty for none. A job that Slurm puts back into the
	// queue loses its nodes. If it ends there, Job has these.
	LastNodes string `json:"last_nodes,omitempty"`
	// NoJobSince is the time at which Slurm was first seen without a live job for the attempt; zero while
	// it has one.
	NoJobSince time.Time `json:"no_job_since,omitzero"`
	// RecordsReadAt is the time of the last reading of the attempt's records since NoJobSince. OutputTail is
	// the last line of the batch script's output. Both are empty before.
	RecordsReadAt time.Time `json:"records_read_at,omitzero"`
	OutputTail    string    `json:"output_tail,omitempty"`
	// ImpossibleSince is the time at which Slurm first gave a reason for which the job can never start, or at which the job of an
	// attempt that has begun was first back in the queue; zero while there is neither.
	ImpossibleSince time.Time `json:"impossible_since,omitzero"`
	// SiteChanges are the values of a job that can never start which the site has changed (Policy.SiteChanges); empty
	// for none.
	SiteChanges string `json:"site_changes,omitempty"`
	// Requeued is set once Slurm has shown that it put the job back into the queue after the attempt had begun. The job's
	// next start cannot begin the attempt again.
	Requeued bool `json:"requeued,omitempty"`
	// SubmittedAsBegun is the job's time of submission as the bridge knew it when it learnt that the attempt had begun, or
	// else as a snapshot first showed it after that; zero if it is not known.
	SubmittedAsBegun time.Time `json:"submitted_as_begun,omitzero"`
	// RevokedSince is the time at which Slurm first showed the job REVOKED since the bridge was started;
	// zero while it does not.
	RevokedSince time.Time `json:"revoked_since,omitzero"`
	// TimeLimits are the job's time limits.
	TimeLimits TimeLimits `json:"time_limits,omitzero"`
	// CancelledAt is the time of the last scancel; zero before.
	CancelledAt time.Time `json:"cancelled_at,omitzero"`
	// Fenced is set once the attempt can never begin.
	Fenced bool `json:"fenced,omitempty"`
	// RecordsGoneSince is the time at which fencing first found the attempt's records missing from the
	// disk; zero while they exist. Such an attempt cannot begin after it was fenced, but it may have begun
	// before.
	RecordsGoneSince time.Time `json:"records_gone_since,omitzero"`

	// Begun is the attempt's started record; nil before.
	Begun *spool.Started `json:"begun,omitempty"`
	// SlurmVersion is the version of Slurm when the bridge read that record.
	SlurmVersion string `json:"slurm_version,omitempty"`
	// CommandBegan is set once a record has shown that the attempt's command has begun, and RunningAt is the
	// time of that reading. A worker begins the command once it has set the container up.
	CommandBegan bool      `json:"command_began,omitempty"`
	RunningAt    time.Time `json:"running_at,omitzero"`
	// Exit is the worker's exit record; nil before.
	Exit *spool.Exit `json:"exit,omitempty"`
	// EndedAt is the end of the attempt's job, as far as the bridge knows: the time of the exit record, or the
	// time at which Slurm was first seen without the job. It is zero until the attempt is concluded.
	EndedAt time.Time `json:"ended_at,omitzero"`
	// Status is the worker's last status. The ledger does not store it: a restarted bridge reads it again
	// from the disk.
	Status *spool.Status `json:"-"`
	// Turn is the pending job's place among the waiting jobs of all users; zero if it is not known. The ledger does not
	// store it, because it changes all the time.
	Turn sbatch.Turn `json:"-"`
	// Limit describes the limit for which the pending job waits, as far as it is known. Like Turn it is not stored.
	Limit ReachedLimit `json:"-"`
	// UsageUnread is set while a restarted bridge has not read the usage of an attempt that had begun, which
	// an earlier life of the bridge may have reported.
	UsageUnread bool `json:"-"`
}

// Times has the start times of the stages of a run; zero for a stage that has not begun. The start of the
// stage "running" is Attempt.RunningAt.
type Times struct {
	Preparing  time.Time `json:"preparing,omitzero"`
	CleaningUp time.Time `json:"cleaning_up,omitzero"`
	Uploading  time.Time `json:"uploading,omitzero"`
	Finalizing time.Time `json:"finalizing,omitzero"`
}

// Verdict is the end of a bundle: ready, failed or killed.
type Verdict struct {
	Cause spool.Cause `json:"cause"`
	// ExitCode is the command's exit status; nil if it has none.
	ExitCode *int `json:"exit_code,omitempty"`
	// Failure is one sentence for the researcher; empty for a success, and if the exit status needs no
	// explanation.
	Failure string `json:"failure,omitempty"`
	// Restage is set if the bundle has not ended: the worker gives it back, and the server has to stage it
	// again. No results are collected.
	Restage bool `json:"restage,omitempty"`
}

// NewRow returns the row of a bundle that the server has just offered to a queue.
func NewRow(now time.Time, queue string, m codalab.Message) Row {
	r := Row{
		Bundle: m.UUID, Queue: queue, Run: &codalab.RunBundle{}, OfferedAt: now,
		Phase: Claiming, PhaseSince: now, Reason: "the server offered the bundle", DecidedAt: now,
	}
	if m.Bundle != nil {
		run := *m.Bundle
		run.Metadata = run.Metadata.Only("created", "exclude_patterns", "name", "request_docker_image", "request_priority", codalab.SecretsKey)
		if tags := m.Bundle.Metadata.ResumeTags(); len(tags) > 0 {
			run.Metadata["tags"] = tags
		}
		r.Bundle, r.Run = run.UUID, &run
	}
	if m.Resources != nil {
		r.Resources = *m.Resources
	}
	return r
}

// SecretNames returns the names of the bundle's secrets; none for most bundles.
func (r Row) SecretNames() []string { return r.Run.Metadata.Strings(codalab.SecretsKey) }

// NeedsSecrets reports whether the job of the row's submission may still begin, and so needs the values of the secrets.
func (r Row) NeedsSecrets() bool {
	switch r.Phase {
	case Submitting, Queued, Running:
		return true
	case Claiming, Staging, Stopping, Collecting, Finalizing, Done:
	}
	return false
}

// InFlight reports whether the row has, or may have, a job in Slurm that can still run the bundle or
// that the bridge has to end.
func (r Row) InFlight() bool {
	switch r.Phase {
	case Submitting, Queued, Running, Stopping:
		return true
	case Claiming, Staging, Collecting, Finalizing, Done:
	}
	return r.leavesJob()
}

// leavesJob reports whether the bundle has ended, and the attempt's job may still wait in Slurm: the attempt has not
// started, or Slurm has put its job back into the queue. Such a bundle that was resumed has the results of an earlier attempt.
func (r Row) leavesJob() bool {
	over := r.Phase == Collecting || r.Phase == Finalizing || r.Phase == Done
	return over && !r.Pack && (r.Begun == nil || r.Requeued) && !r.SubmittedAt.IsZero() && r.NoJobSince.IsZero()
}

// MayHaveWorker reports whether a worker may have begun the attempt, according to Slurm. It is false while
// the job is pending.
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

// CancelsJob reports whether the row's job lives and the bridge has to end it. It is false while only
// sbatch's answer names the job: a site's wrapper of sbatch may print any number.
func (r Row) CancelsJob() bool {
	job := r.Job
	known := !job.Submitted.IsZero() || r.Begun != nil && r.Begun.Job == job.ID.String()
	lives := r.NoJobSince.IsZero() && !job.State.Ended() && job.State != sbatch.StateCompleting
	return (r.Phase == Stopping || r.leavesJob()) && !r.Pack && job.ID != 0 && known && lives
}

// Same reports whether the ledger stores the same for both rows. It ignores their versions.
func (r Row) Same(other Row) bool { return r.stored() == other.stored() }

// stored returns the part of the row that the ledger stores.
func (r Row) stored() Row {
	r.Version, r.Status, r.UsageUnread, r.Progress, r.Turn, r.Limit = 0, nil, false, "", sbatch.Turn{}, ReachedLimit{}
	return r
}

// WaitsToSubmit reports whether the row is staged and waits to be submitted.
func (r Row) WaitsToSubmit(now time.Time) bool {
	return r.Phase == Staging && r.Staged != nil && !r.awaitsFiles() && r.StopVerdict == nil && !r.DueAt.After(now)
}

// Outline is the content of a ledger. Most rows are done, and no caller needs all of those at once.
type Outline struct {
	// Rows are the rows that are not done, sorted by bundle.
	Rows []Row
	// Done maps the bundle of each row that is done to its queue.
	Done map[string]string
}

// ByBundle returns a function that finds a row by its bundle; nil for a bundle without a row.
func ByBundle(rows []Row) func(bundle string) *Row {
	byBundle := make(map[string]*Row, len(rows))
	for i := range rows {
		byBundle[rows[i].Bundle] = &rows[i]
	}
	return func(bundle string) *Row { return byBundle[bundle] }
}
