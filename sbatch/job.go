package sbatch

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// JobID is a job's number, as squeue's %A prints it. A task of an array has a number
// of its own once it starts; tasks that wait share the array's number.
type JobID int64

// String prints the id as Slurm's commands take it.
func (id JobID) String() string { return strconv.FormatInt(int64(id), 10) }

// State is a job's state as Slurm spells it; unknown ones are kept. See
// squeue(1), JOB STATE CODES.
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
	StateExpediting  State = "EXPEDITING" // 26.05: it is requeued, and begins again before others
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

// Ended reports whether a job in this state will not run any more. A state that
// is not known has not ended. Neither has REVOKED: another cluster of a federation
// has started the job, and this one shows the same state while it runs there and
// after its end (Slurm src/slurmctld/fed_mgr.c: fed_mgr_job_revoke).
func (s State) Ended() bool {
	switch s { //nolint:exhaustive // the other states, unknown ones too, have not ended
	case StateCompleted, StateFailed, StateCancelled, StateTimeout, StateDeadline,
		StateOutOfMemory, StateNodeFail, StateBootFail, StatePreempted:
		return true
	}
	return false
}

// ExitedWell is the Exit of a batch script that ended with exit status 0.
const ExitedWell = "0:0"

// Job is one job as Slurm shows it.
type Job struct {
	ID JobID `json:"id"`
	// Cluster is that of the Client; empty for slurm.conf's own. Each cluster has ids of its own.
	Cluster string `json:"cluster,omitempty"`
	Name    string `json:"name"`
	State   State  `json:"state"`
	// Reason is why a job is pending, or why it ended; "None" where Slurm
	// gives no reason. Versions of Slurm have different words for how a job ended: of a batch script
	// that a signal ended, 22.05 says JobLaunchFailure, and 24.11 RaisedSignal:15(Terminated). Decide
	// by State and Exit.
	Reason string `json:"reason"`
	// Nodes is the list of its nodes, in Slurm's form; empty before the job has
	// an allocation. A job that ended without nodes never began: it is the record
	// of a refused submission, or was cancelled while it was pending.
	Nodes string `json:"nodes"`
	// Submitted is when the controller took it, by the controller's clock, in whole seconds; zero
	// if unknown. It tells two jobs of one id apart. A requeued job has a new time.
	Submitted time.Time `json:"submitted,omitzero"`
	// Start is when it began or is expected to begin; zero if unknown.
	Start time.Time `json:"start,omitzero"`
	// Exit is how the batch script ended, as sacct prints it: its exit status and the signal
	// that ended it, such as "3:0". It is empty if unknown. Observe knows it of COMPLETED jobs only,
	// and QueryAccounting of all other ended jobs: where the database has missed an end, sacctmgr
	// may have made the job COMPLETED (sacctmgr(1): RunawayJobs).
	Exit string `json:"exit,omitempty"`
	// CancelledBy is the user id of whoever cancelled a CANCELLED job, as sacct prints it. It is empty if
	// unknown: squeue does not show it. slurmd cancels a job that its node cannot launch as user 0
	// (Slurm src/slurmd/slurmd/req.c: _launch_job_fail, _kill_job).
	CancelledBy string `json:"cancelled_by,omitempty"`
	// Comment is empty in jobs of QueryAccounting. A site's plugins may rewrite
	// it.
	Comment string `json:"comment,omitempty"`
}

// Which says which jobs are meant: those with these ids, and those with these names.
type Which struct {
	IDs   []JobID
	Names []string
}

// Snapshot is all jobs of one user that Slurm's controller knew at one moment: those
// that wait, those that run, and those that ended within the controller's MinJobAge.
type Snapshot struct {
	// Asked is when the request was sent; the answer is not older.
	Asked time.Time `json:"asked"`
	Jobs  []Job     `json:"jobs"`
}

// ByName returns the jobs of each name in the order of their ids. A name has several
// jobs when a submission was repeated because its answer was lost.
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
