package codalab

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

// Final says whether a bundle in this state never changes again.
func (s State) Final() bool {
	return s == StateReady || s == StateFailed || s == StateKilled
}

// OnWorker says whether a bundle in this state is in a worker's hands.
func (s State) OnWorker() bool {
	switch s { //nolint:exhaustive // the other states, unknown ones too, are not a worker's
	case StateStarting, StatePreparing, StateRunning, StateFinalizing, StateWorkerOffline:
		return true
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

// KillRequested is the failure message of a run that its user killed. A
// server calls a finalized run killed when its failure message contains these
// words, and failed otherwise (codalab/model/bundle_model.py:
// transition_bundle_finished).
const KillRequested = "Kill requested"

// Standing is where a bundle stands at its server.
type Standing struct {
	State State
	// RunStatus is the sentence for the researcher that its worker reported last.
	RunStatus string
	// Remote is the host of the worker that claimed the bundle last, or what that
	// worker has reported since.
	Remote string
	// Started is the time that the last claim named, in Unix seconds; 0 before the first claim.
	Started int64
	// UploadFailure is why an upload of its contents failed (Bundle.UploadFailure);
	// empty when none did.
	UploadFailure string
}
