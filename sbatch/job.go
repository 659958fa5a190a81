package sbatch

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// State is a job's state as Slurm spells it, including unknown ones. See squeue(1), JOB STATE CODES.
type State string

// The states of jobs.
const (
	StatePending     State = "PENDING"
	StateConfiguring State = "CONFIGURING"
	StateRunning     State = "RUNNING"
	StateSuspended   State = "SUSPENDED"
	StateStopped     State = "STOPPED"
	StateCompleting  State = "COMPLETING"
	StateSignaling   State = "SIGNALING"
	StateStageOut    State = "STAGE_OUT"
	StateResizing    State = "RESIZING"
	StateRequeued    State = "REQUEUED"
	StateRequeueHold State = "REQUEUE_HOLD"
	StateRequeueFed  State = "REQUEUE_FED"
	StateSpecialExit State = "SPECIAL_EXIT"
	StateResvDelHold State = "RESV_DEL_HOLD"
	StateExpediting  State = "EXPEDITING" // 26.05: it is requeued, and begins before other jobs
	StateCompleted   State = "COMPLETED"
	StateFailed      State = "FAILED"
	StateCancelled   State = "CANCELLED"
	StateTimeout     State = "TIMEOUT"
	StateDeadline    State = "DEADLINE"
	StateOutOfMemory State = "OUT_OF_MEMORY"
	StateNodeFail    State = "NODE_FAIL"
	StateBootFail    State = "BOOT_FAIL"
	StatePreempted   State = "PREEMPTED"
	StateRevoked     State = "REVOKED"
)

// Ended reports whether a job in this state will not run any more. It is false for an unknown state, and for
// REVOKED: another cluster of a federation has started the job, and this cluster shows the same state while
// the job runs there and after its end (Slurm src/slurmctld/fed_mgr.c: fed_mgr_job_revoke).
func (s State) Ended() bool {
	switch s {
	case StateCompleted, StateFailed, StateCancelled, StateTimeout, StateDeadline,
		StateOutOfMemory, StateNodeFail, StateBootFail, StatePreempted:
		return true
	default: // the other states, unknown ones too, have not ended
	}
	return false
}

// Unlimited is the TimeLimit of a job that has none.
const Unlimited time.Duration = math.MaxInt64

// ExitedWell is the Exit of a batch script that ended with exit status 0.
const ExitedWell = "0:0"

// Job is one job as Slurm shows it.
type Job struct {
	ID JobID `json:"id"`
	// Cluster is the Client's; empty for slurm.conf's own. Each cluster counts its own ids.
	Cluster string `json:"cluster,omitempty"`
	Name    string `json:"name"`
	State   State  `json:"state"`
	// Reason is Slurm's reason for a pending job, or for the end of an ended one; "None" if Slurm gives
	// none. Versions of Slurm use different words: for a batch script that a signal ended, 22.05 has
	// JobLaunchFailure, and 24.11 RaisedSignal:15(Terminated). So decide by State and Exit.
	Reason string `json:"reason"`
	// Nodes is the list of its nodes, in Slurm's form; empty before the job has an allocation. A job that
	// ended without nodes never began: it is the record of a refused submission, or was cancelled while
	// it was pending.
	Nodes string `json:"nodes"`
	// Submitted is the time at which the controller accepted it, by the controller's clock, in whole
	// seconds; zero if unknown. It distinguishes two jobs with one id. A requeued job has a new time.
	Submitted time.Time `json:"submitted,omitzero"`
	// Start is its start time, or its expected start time; zero if unknown.
	Start time.Time `json:"start,omitzero"`
	// TimeLimit is its time limit in whole minutes, and Unlimited if it has none. It is zero if unknown, and in jobs of
	// QueryAccounting. Administrators may change that of a waiting and of a running job.
	TimeLimit time.Duration `json:"time_limit,omitempty"`
	// Exit is the exit status of the batch script and the signal that ended it, as sacct prints them, such
	// as "3:0". It is empty if unknown. Observe knows it for COMPLETED jobs only, and QueryAccounting for
	// all other ended jobs: if the database has missed an end, sacctmgr may have made the job COMPLETED
	// (sacctmgr(1): RunawayJobs).
	Exit string `json:"exit,omitempty"`
	// CancelledBy is the id of the user who cancelled a CANCELLED job, as sacct prints it. It is empty if
	// unknown: squeue does not show it. slurmd cancels a job that its node cannot launch as user 0 (Slurm
	// src/slurmd/slurmd/req.c: _launch_job_fail, _kill_job).
	CancelledBy string `json:"cancelled_by,omitempty"`
	// Canceller is the name of that user; empty if unknown.
	Canceller string `json:"canceller,omitempty"`
	// Comment is empty in jobs of QueryAccounting. A site's plugins may rewrite it.
	Comment string `json:"comment,omitempty"`
}

// Which selects jobs: those with these ids, and those with these names.
type Which struct {
	IDs   []JobID
	Names []string
}

// Snapshot is all jobs of one user that Slurm's controller knew at one moment: waiting jobs, running jobs,
// and jobs that ended within the controller's MinJobAge.
type Snapshot struct {
	// Asked is the time at which the request was sent; the answer is not older.
	Asked time.Time `json:"asked"`
	Jobs  []Job     `json:"jobs"`
}

// ByName returns the jobs of each name in the order of their ids. A name has several jobs if a submission
// was repeated because its answer was lost.
func (s Snapshot) ByName() map[string][]Job {
	found := map[string][]Job{}
	for _, j := range s.Jobs {
		found[j.Name] = append(found[j.Name], j)
	}
	for _, jobs := range found {
		slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.ID, b.ID) })
	}
	return found
}
