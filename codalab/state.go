package codalab

import "strings"

// State is the state of a bundle, as on the wire. Unknown ones are kept.
type State string

// The states of bundles (codalab/worker/bundle_state.py: State).
const (
	StateUploading     State = "uploading"
	StateCreated       State = "created"
	StateStaged        State = "staged"
	StateMaking        State = "making"
	StateStarting      State = "starting"
	StatePreparing     State = "preparing"
	StateRunning       State = "running"
	StateFinalizing    State = "finalizing"
	StateReady         State = "ready"
	StateFailed        State = "failed"
	StateKilled        State = "killed"
	StateWorkerOffline State = "worker_offline"
)

// Final reports whether a bundle in this state never changes again.
func (s State) Final() bool {
	return s == StateReady || s == StateFailed || s == StateKilled
}

// OnWorker reports whether a worker has a bundle in this state.
func (s State) OnWorker() bool {
	switch s {
	case StateStarting, StatePreparing, StateRunning, StateFinalizing, StateWorkerOffline:
		return true
	default: // no worker has a bundle in the other states, known or unknown
	}
	return false
}

// Busy reports whether something works on a bundle in this state, which then cannot be deleted.
func (s State) Busy() bool {
	switch s {
	case StateMaking, StateStarting, StatePreparing, StateRunning, StateFinalizing:
		return true
	default: // the others wait, have ended, or are on a worker that is not there
	}
	return false
}

// Bundle types (codalab/bundles/__init__.py).
const (
	TypeDataset = "dataset"
	TypeProgram = "program"
	TypeMake    = "make"
	TypeRun     = "run"
	TypePrivate = "private"
)

// KillRequested is the failure message of a run that its user killed. A server makes a
// finalized run killed if its failure message contains these words, and failed otherwise
// (codalab/model/bundle_model.py: transition_bundle_finished).
const KillRequested = "Kill requested"

// KilledForQuota reports whether a kill message says that the owner has used up a quota (codalab/rest/workers.py:
// checkin). Other kill messages are wishes of a user.
func KilledForQuota(message string) bool {
	return strings.HasPrefix(message, KillRequested+": User ") && strings.Contains(message, " quota exceeded.")
}

// KillUpload is the kill message of a run whose worker has told that it collects the results. Our server sends it, and
// repeats a kill message until the run has ended: a worker that was told to kill the command knows a later wish, to give
// the upload up, by these words.
const KillUpload = KillRequested + ": the upload of the results is given up."

// Standing is a server's record of a bundle's progress.
type Standing struct {
	// Identity is the identity of the bundle that has the UUID now.
	Identity Identity
	State    State
	// RunStatus is the sentence for the researcher in the worker's last report.
	RunStatus string
	// Remote is the host in the worker's last report, or the host that made the last claim.
	Remote string
	// Started is the time in the last claim, in Unix seconds; 0 before the first claim.
	Started int64
	// UploadFailure is Bundle.UploadFailure.
	UploadFailure string
}
