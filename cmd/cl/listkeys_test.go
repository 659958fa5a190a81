package main

import (
	"slices"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// TestListsShowTheSameWithoutUnshownMetadata compares each field of a run with all keys of metadata to that of the same run
// with the keys that a list asks for.
func TestListsShowTheSameWithoutUnshownMetadata(t *testing.T) {
	t.Parallel()
	command, args, frozen := "python train.py", "run 'python train.py'", "2026-11-28T20:00:00"
	whole := client.BundleInfo{
		Bundle: codalab.Bundle{
			UUID: codalab.NewUUID(), Type: codalab.TypeRun, Command: &command, Args: &args, State: codalab.StateRunning, StateDetails: "Step 3 of 9",
			Frozen: &frozen, OwnerID: "0x7", PermissionSpec: "all", Permission: 2, Metadata: codalab.Metadata{},
			Dependencies: []codalab.Dependency{{ChildPath: "data", ParentUUID: "0xabc", ParentName: "set"}},
			Cost:         &codalab.Cost{AllocatedSeconds: 60, QueuedSeconds: 3, EnergyJoules: 12},
		},
		Owner:    &codalab.User{UserName: "ann"},
		Children: []codalab.Bundle{{UUID: "0xchild", Metadata: codalab.Metadata{"name": "child"}}},
	}
	for i, key := range metadataFields() {
		whole.Metadata[key] = float64(i + 1)
	}
	whole.Metadata["name"], whole.Metadata["run_status"] = "train", "Step 3 of 9"
	fields := slices.Concat(computedFields(), costFields(), metadataFields(), []string{"dependencies/data", "/stdout"})
	for _, field := range fields {
		keys, brief := shownKeys([]string{field}), whole
		if keys != nil {
			brief.Metadata, brief.Args, brief.StateDetails = whole.Metadata.Only(keys...), nil, ""
		}
		if got, want := cell(brief, field), cell(whole, field); got != want {
			t.Errorf("with the keys %q, field %s is %q instead of %q", keys, field, got, want)
		}
	}
	if keys := shownKeys([]string{"uuid", "summary", "created"}); !slices.Equal(keys, []string{"created", "name"}) {
		t.Errorf("a list asks for %q", keys)
	}
}
