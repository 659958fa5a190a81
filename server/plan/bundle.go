package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Worker identifies a worker: its user, and an id that is unique for that user.
type Worker struct{ User, ID string }

// Bundle has those properties of a stored bundle that decisions read or change.
type Bundle struct {
	UUID, Type, OwnerID string
	State               codalab.State
	Metadata            codalab.Metadata
	Dependencies        []codalab.Dependency
	Created             time.Time

	// DataSize counts against the owner's disk quota.
	DataSize int64
	// Contents is the name of the directory with the contents; empty if there are none.
	Contents string
	// Entries is the number of entries of the contents, which counts against the quota too.
	Entries int64
	// Worker has the run, or had it at its end; zero if no worker has it.
	Worker Worker
	// Assigned is the time at which the run was assigned to Worker.
	Assigned time.Time
	// ChargedTime is the number of seconds by which the last report raises the owner's time_used.
	ChargedTime int64
	// KillMessage tells the worker why it must kill the run; empty if it must not.
	KillMessage string
	// Cost is the run's cost as its worker reported it; nil if no worker did.
	Cost *codalab.Cost
	// Platform is that of the run's command, as its worker reported it or an import told it; nil if none did.
	Platform *codalab.Platform
}

// own returns a copy of the bundle whose metadata can be changed.
func (b Bundle) own() Bundle {
	b.Metadata = maps.Clone(b.Metadata)
	if b.Metadata == nil {
		b.Metadata = codalab.Metadata{}
	}
	return b
}

// mostSize bounds a bundle's size, because a worker or a client may report any size.
const mostSize = 1 << 50

// setSize sets DataSize and data_size. The caller owns the bundle.
func (b *Bundle) setSize(bytes int64) {
	bytes = min(max(0, bytes), mostSize)
	b.DataSize = bytes
	b.Metadata["data_size"] = bytes
}

// Fail fails a bundle of which no worker reports the end.
func (b Bundle) Fail(message string) Bundle {
	if b.State.Final() {
		return b
	}
	b = b.own()
	b.fail(message)
	return b
}

// fail removes the sentences about a wait that is over. A killed bundle keeps them, as on CodaLab's own
// server.
func (b *Bundle) fail(message string) {
	delete(b.Metadata, "staged_status")
	if b.Metadata.Has("run_status") {
		b.Metadata["run_status"] = finishedStatus
	}
	b.end(codalab.StateFailed)
	b.Metadata["failure_message"] = message
}

// end gives the bundle a final state. The size of one without contents becomes 0: what its client has
// announced, or its worker has reported, does not come. The caller owns the bundle.
func (b *Bundle) end(state codalab.State) {
	b.State = state
	if b.Contents == "" && b.DataSize != 0 {
		b.setSize(0)
	}
}

// Kill kills a bundle that no worker has claimed. For a claimed run it sets KillMessage, and the run
// ends with its worker's report (codalab/rest/bundle_actions.py: create_bundle_actions). If its results are collected
// already, a kill asks the worker to give that up, even if the command was killed before.
func (b Bundle) Kill() Bundle {
	if b.State.Final() {
		return b
	}
	b = b.own()
	if b.Type == codalab.TypeRun { // uploads do not have this key
		actions := b.Metadata.Strings("actions")
		b.Metadata["actions"] = append(actions[:len(actions):len(actions)], "kill")
	}
	if b.claimed() {
		b.KillMessage = codalab.KillRequested
		if b.collects() {
			b.KillMessage = codalab.KillUpload
		}
		return b
	}
	b.endKilled()
	return b
}

// collects reports whether the run's worker has told that the command has ended and its results are collected: it has
// reported the time of the stage before.
func (b Bundle) collects() bool {
	_, told := b.Metadata["time_cleaning_up"]
	return b.claimed() && told
}

// endKilled ends a bundle as killed, without a report of a worker. The caller owns the bundle.
func (b *Bundle) endKilled() {
	message := b.KillMessage
	if message == "" {
		message = codalab.KillRequested
	}
	b.end(codalab.StateKilled)
	b.Worker = Worker{}
	b.Metadata["failure_message"] = message
}

// claimed reports whether a worker has claimed the run.
func (b Bundle) claimed() bool { return b.State.OnWorker() && b.State != codalab.StateStarting }

// KillOverQuota kills a claimed run whose owner has used up a quota, unless it is being killed
// (codalab/rest/workers.py: checkin). A run with results has ended, and uses nothing more.
func (b Bundle) KillOverQuota(owner Quota) Bundle {
	if b.claimed() && b.KillMessage == "" && b.Contents == "" {
		b.KillMessage = owner.KillMessage()
	}
	return b
}

// StuckAfter is the age at which Expire fails a bundle (codalab/server/bundle_manager.py:
// BUNDLE_TIMEOUT_DAYS). CodaLab's own server fails a running bundle of that age too, even if its worker
// reports it.
const StuckAfter = 60 * 24 * time.Hour

// Expiring lists the states in which a bundle waits for its contents, for a worker, or for its worker
// to come back.
func Expiring() []codalab.State {
	return []codalab.State{codalab.StateUploading, codalab.StateStaged, codalab.StateWorkerOffline}
}

// Expire fails a bundle that has waited for StuckAfter.
func (b Bundle) Expire(now time.Time) Bundle {
	if now.Sub(b.Created) < StuckAfter || !slices.Contains(Expiring(), b.State) {
		return b
	}
	return b.Fail(fmt.Sprintf("Bundle has been stuck in %s state for more than %d days.", b.State, StuckAfter/(24*time.Hour)))
}
