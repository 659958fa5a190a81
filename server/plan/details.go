package plan

import (
	"cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Details explains a bundle's state in a sentence (codalab/lib/bundle_util.py:
// get_bundle_state_details). It is not empty while the bundle has not ended: a worker may report an empty
// run_status.
func (b Bundle) Details() string {
	const uploading = "Bundle contents are being uploaded." // a copy of another server's bundle, of any type
	switch b.State {
	case codalab.StateStaged:
		return cmp.Or(b.Metadata.String("staged_status"), StagedStatus)
	case codalab.StatePreparing:
		return cmp.Or(b.Metadata.String("run_status"), preparingStatus)
	case codalab.StateRunning:
		return cmp.Or(b.Metadata.String("run_status"), "The bundle runs on a worker.")
	default: // other states have fixed texts
	}
	switch b.Type {
	case codalab.TypeMake:
		return map[codalab.State]string{
			codalab.StateCreated:   "Bundle has been created but its contents have not yet been populated.",
			codalab.StateUploading: uploading,
			codalab.StateMaking:    "Bundle contents are being populated by copying its dependencies.",
			codalab.StateReady:     "Bundle contents have been successfully populated and is ready for further runs.",
			codalab.StateFailed:    "Populating bundle contents failed.",
		}[b.State]
	case codalab.TypeRun:
		return map[codalab.State]string{
			codalab.StateCreated:       "Bundle has been created but its contents have not been populated yet.",
			codalab.StateUploading:     uploading,
			codalab.StateStarting:      "Bundle has been assigned to a worker. Waiting for worker to start the bundle.",
			codalab.StateFinalizing:    "Bundle command has finished executing, cleaning up on the worker.",
			codalab.StateReady:         "Bundle command has finished executing successfully, and results have been uploaded to the server.",
			codalab.StateFailed:        "Bundle has failed.",
			codalab.StateKilled:        "Bundle was killed by the user. Bundle contents populated based on when the bundle was killed.",
			codalab.StateWorkerOffline: "The worker where the bundle is running on is offline, and the worker might or might not come back online.",
		}[b.State]
	}
	return map[codalab.State]string{
		codalab.StateCreated:   "Bundle has been created but its contents have not been uploaded yet.",
		codalab.StateUploading: uploading,
		codalab.StateReady:     "Bundle has finished uploading successfully, and is ready to be used for further runs.",
		codalab.StateFailed:    "Bundle uploading failed.",
	}[b.State]
}
