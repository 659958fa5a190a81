package plan

import (
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// StagedStatus is the staged_status of a run that waits for a worker (codalab/model/bundle_model.py).
const StagedStatus = "Bundle's dependencies are all ready. Waiting for the bundle to be assigned to a worker to be run."

// Create returns a new bundle in its first state; waits means that its client sends contents later. A run
// or make bundle without dependencies is staged at once. One with dependencies waits for Stage, because a
// parent may be deleted before the bundle is stored.
func (b Bundle) Create(waits bool) Bundle {
	b = b.own()
	made := b.Type == codalab.TypeRun || b.Type == codalab.TypeMake
	switch {
	case b.Metadata.String("link_url") != "":
		b.State = codalab.StateReady
	case waits || !made:
		b.State = codalab.StateUploading
	case len(b.Dependencies) > 0:
		b.State = codalab.StateCreated
	default:
		b.stage()
	}
	return b
}

func (b *Bundle) stage() {
	b.State = codalab.StateStaged
	b.Metadata["staged_status"] = StagedStatus
}

// Parent is a bundle on which another one depends.
type Parent struct {
	UUID  string
	State codalab.State
	// Readable means that the child's owner may read it.
	Readable bool
}

// Stage stages a created bundle if all its parents are ready, and fails it if they never will be
// (codalab/server/bundle_manager.py: _stage_bundles). parents are those of its parents that exist.
// It also returns whether it did either.
func (b Bundle) Stage(parents []Parent) (Bundle, bool) {
	if b.State != codalab.StateCreated {
		return b, false
	}
	found := map[string]Parent{}
	for _, p := range parents {
		found[p.UUID] = p
	}
	var failed, killed, missing, unreadable []string
	ready, seen := true, map[string]bool{}
	for _, d := range b.Dependencies {
		p, ok := found[d.ParentUUID]
		switch {
		case seen[d.ParentUUID]:
		case !ok:
			missing = append(missing, d.ParentUUID)
		case !p.Readable:
			unreadable = append(unreadable, d.ParentUUID)
		case p.State == codalab.StateFailed:
			failed = append(failed, d.ParentUUID)
		case p.State == codalab.StateKilled:
			killed = append(killed, d.ParentUUID)
		case p.State != codalab.StateReady:
			ready = false
		}
		seen[d.ParentUUID] = true
	}
	switch {
	case len(missing) > 0:
		return b.Fail("Missing parent bundles: " + strings.Join(missing, ", ")), true
	case len(unreadable) > 0:
		return b.Fail("Parent bundles that the bundle's owner may not read: " + strings.Join(unreadable, ", ")), true
	case len(failed)+len(killed) > 0 && !b.Metadata.Bool("allow_failed_dependencies"):
		return b.Fail(parentsFailed(failed, killed)), true
	case !ready:
		return b, false
	}
	b = b.own()
	b.stage()
	return b, true
}

func parentsFailed(failed, killed []string) string {
	message := ""
	if len(failed) > 0 {
		message += "Parent bundles failed: " + strings.Join(failed, ", ") + " "
	}
	if len(killed) > 0 {
		message += "Parent bundles were killed: " + strings.Join(killed, ", ") + " "
	}
	return message + "(Please use the --allow-failed-dependencies flag to depend on results of failed or killed bundles)"
}
