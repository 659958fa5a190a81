package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// A worker may report no sentence, and rows of older servers may have none.
func TestStateIsExplainedUntilTheEnd(t *testing.T) {
	t.Parallel()
	for bundleType, states := range map[string][]codalab.State{
		codalab.TypeDataset: {codalab.StateCreated, codalab.StateUploading},
		codalab.TypeMake:    {codalab.StateCreated, codalab.StateUploading, codalab.StateStaged, codalab.StateMaking},
		codalab.TypeRun: {
			codalab.StateCreated, codalab.StateUploading, codalab.StateStaged, codalab.StateStarting, codalab.StatePreparing,
			codalab.StateRunning, codalab.StateFinalizing, codalab.StateWorkerOffline,
		},
	} {
		for _, state := range states {
			for _, metadata := range []codalab.Metadata{{}, {"staged_status": "", "run_status": ""}, {"staged_status": nil, "run_status": nil}} {
				if stateDetails(store.Bundle{Type: bundleType, State: state, Metadata: metadata}) == "" {
					t.Errorf("%s %s with %v is not explained", bundleType, state, metadata)
				}
			}
		}
	}
}

func TestFailedBundleTellsOfNoWait(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ before, after codalab.Metadata }{
		{codalab.Metadata{"staged_status": "Waiting."}, codalab.Metadata{"failure_message": "no"}},
		{codalab.Metadata{"staged_status": "Waiting.", "run_status": "Waiting."}, codalab.Metadata{"failure_message": "no", "run_status": "Finished"}},
	} {
		b := store.Bundle{Type: codalab.TypeRun, State: codalab.StateWorkerOffline, Metadata: test.before}
		setFailed(&b, "no")
		if diff := cmp.Diff(test.after, b.Metadata); diff != "" || b.State != codalab.StateFailed {
			t.Errorf("%s %s", b.State, diff)
		}
	}
}
