package server

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// The sentences of CodaLab's own server for runs (codalab/model/bundle_model.py).
const (
	preparingStatus = "Waiting for worker to download bundle dependencies and Docker image to run the bundle."
	finishedStatus  = "Finished"
)

// The functions of this file change a bundle's state. One that does not apply, since another
// change came first, leaves the bundle as it is.

// stage stages a created run if its parents are ready, and fails it if they never will be
// (codalab/server/bundle_manager.py: _stage_bundles). It returns whether it did either.
func stage(b *store.Bundle, parents []store.Parent) bool {
	if b.State != codalab.StateCreated {
		return false
	}
	var failed, killed, missing, unreadable []string
	ready := true
	found := map[string]store.Parent{}
	for _, p := range parents {
		found[p.UUID] = p
	}
	seen := map[string]bool{}
	for _, d := range b.Dependencies {
		p, ok := found[d.ParentUUID]
		switch {
		case seen[d.ParentUUID]:
		case !ok:
			missing = append(missing, d.ParentUUID)
		case has(store.User{ID: b.OwnerID}, p.OwnerID, p.Granted) < store.PermissionRead:
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
		setFailed(b, "Missing parent bundles: "+strings.Join(missing, ", "))
	case len(unreadable) > 0:
		setFailed(b, "Parent bundles that the bundle's owner may not read: "+strings.Join(unreadable, ", "))
	case len(failed)+len(killed) > 0 && !b.Metadata.Bool("allow_failed_dependencies"):
		setFailed(b, parentsFailed(failed, killed))
	case ready:
		b.State = codalab.StateStaged
		b.Metadata["staged_status"] = stagedStatus
	default:
		return false
	}
	return true
}

// stageNew stages a new bundle that depends on none, which saves a change right after. A parent might be
// deleted meanwhile.
func stageNew(b *store.Bundle) {
	if b.State == codalab.StateCreated && len(b.Dependencies) == 0 {
		b.State = codalab.StateStaged
		b.Metadata["staged_status"] = stagedStatus
	}
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

// setFailed fails a bundle of which no worker reports the end. Its sentences tell of a wait that is over.
// Those of a bundle that is killed stay, as on CodaLab's own server.
func setFailed(b *store.Bundle, message string) {
	delete(b.Metadata, "staged_status")
	if b.Metadata.Has("run_status") {
		b.Metadata["run_status"] = finishedStatus
	}
	b.State = codalab.StateFailed
	b.Metadata["failure_message"] = message
}

// assign assigns a staged run to a worker (codalab/model/bundle_model.py:
// transition_bundle_starting).
func assign(b *store.Bundle, to store.Worker, now time.Time) {
	if b.State != codalab.StateStaged {
		return
	}
	b.State, b.Worker, b.Assigned = codalab.StateStarting, to, store.Time{Time: now}
	b.Metadata["last_updated"] = now.Unix()
	b.Metadata["staged_status"] = stagedStatus
}

// unassign stages a run again that its worker did not claim or gave back. It removes what the
// worker reported (transition_bundle_staged).
func unassign(b *store.Bundle) {
	for _, key := range codalab.MetadataKeys(codalab.TypeRun) {
		if key.Generated && key.Key != "actions" && key.Key != "created" {
			delete(b.Metadata, key.Key)
		}
	}
	b.Metadata["remote_history"] = []string{}
	b.Metadata["staged_status"] = stagedStatus
	b.Contents = ""
	b.SetDataSize(0)
	delete(b.Metadata, "data_size")
	b.State, b.Worker, b.Assigned = codalab.StateStaged, store.Worker{}, store.Time{}
	if b.KillMessage != "" {
		setKilled(b)
	}
}

// claim records a worker's claim. It returns whether the worker has the run, also for a
// repeated claim (transition_bundle_preparing).
func claim(b *store.Bundle, by store.Worker, start codalab.StartBundle, preemptible bool) bool {
	if b.Worker != by || !b.State.OnWorker() {
		return false
	}
	if b.State != codalab.StateStarting {
		return true
	}
	host := termtext.OneLine(start.Hostname)
	b.State = codalab.StatePreparing
	b.Metadata["run_status"] = preparingStatus
	b.Metadata["started"] = start.StartTime
	b.Metadata["last_updated"] = start.StartTime
	b.Metadata["remote"] = host
	b.Metadata["remote_history"] = append(b.Metadata.Strings("remote_history"), host)
	b.Metadata["on_preemptible_worker"] = preemptible
	return true
}

// applyReport applies its worker's report to a run that has not ended
// (transition_bundle_running, transition_bundle_finalizing).
func applyReport(b *store.Bundle, run codalab.Run, now time.Time, charged bool) {
	run = plainReport(run)
	switch run.State { //nolint:exhaustive // workers report no other states
	case codalab.StateStaged:
		unassign(b)
		return
	case codalab.StatePreparing, codalab.StateRunning:
		b.State = run.State
	case codalab.StateFinalizing:
	default:
		return
	}
	copyReport(b, run, now, charged)
	if run.State == codalab.StateFinalizing {
		finish(b, run)
	}
}

// plainReport returns a report with texts that steer no terminal. Any user may run workers, and others
// read what these report.
func plainReport(run codalab.Run) codalab.Run {
	run.RunStatus, run.Remote, run.JobHandle = termtext.OneLine(run.RunStatus), termtext.OneLine(run.Remote), termtext.OneLine(run.JobHandle)
	if run.DockerImage != nil {
		image := termtext.OneLine(*run.DockerImage)
		run.DockerImage = &image
	}
	if run.FailureMessage != nil {
		message := termtext.Escape(*run.FailureMessage)
		run.FailureMessage = &message
	}
	return run
}

// copyReport copies a report into the bundle's metadata. If the run is charged, its time counts
// against the owner's quota.
func copyReport(b *store.Bundle, run codalab.Run, now time.Time, charged bool) {
	m := b.Metadata
	m["run_status"] = run.RunStatus
	m["last_updated"] = now.Unix()
	if charged {
		const most = 1e10 // seconds, some three hundred years
		b.ChargedTime = max(0, int64(min(run.ContainerTimeTotal, most))-int64(max(0, m.Float("time"))))
	}
	m["time"] = run.ContainerTimeTotal
	m["time_user"] = run.ContainerTimeUser
	m["time_system"] = run.ContainerTimeSystem
	m["remote"] = run.Remote
	m["cpu_usage"] = run.CPUUsage
	m["memory_usage"] = run.MemoryUsage
	if run.MemoryMax > 0 {
		m["memory_max"] = float64(run.MemoryMax)
	}
	if run.JobHandle != "" { // the last job's stays until there is another one
		m["job_handle"] = run.JobHandle
	}
	if b.Contents == "" { // otherwise data_size is the size of the contents
		b.SetDataSize(max(0, run.DiskUtilization))
	}
	if run.DockerImage != nil {
		m["docker_image"] = *run.DockerImage
	}
	for stage, key := range map[string]string{
		codalab.StagePreparing: "time_preparing", codalab.StageRunning: "time_running",
		codalab.StageCleaningUp: "time_cleaning_up", codalab.StageUploading: "time_uploading_results",
	} {
		if elapsed := run.Profile[stage].Elapsed; elapsed != nil {
			m[key] = *elapsed
		}
	}
}

// finish gives a run its final state (transition_bundle_finished).
func finish(b *store.Bundle, run codalab.Run) {
	message := ""
	if run.FailureMessage != nil {
		message = *run.FailureMessage
	}
	if run.ExitCode != nil {
		b.Metadata["exitcode"] = *run.ExitCode
		if message == "" && *run.ExitCode != 0 {
			message = fmt.Sprintf("Exit code %d", *run.ExitCode)
		}
	}
	if message != "" {
		b.Metadata["failure_message"] = message
	}
	switch {
	case strings.Contains(message, codalab.KillRequested):
		b.State = codalab.StateKilled
	case message != "":
		b.State = codalab.StateFailed
	default:
		b.State = codalab.StateReady
	}
	b.Metadata["run_status"] = finishedStatus
	if b.Contents == "" { // there are no results to count
		b.SetDataSize(0)
	}
}

// requestKill kills a bundle that no worker has claimed. For the others it records that their
// worker must kill them (codalab/rest/bundle_actions.py: create_bundle_actions).
func requestKill(b *store.Bundle) {
	if b.Type == codalab.TypeRun { // uploads do not have this key
		b.Metadata["actions"] = append(b.Metadata.Strings("actions"), "kill")
	}
	if b.State.OnWorker() && b.State != codalab.StateStarting {
		b.KillMessage = codalab.KillRequested
		return
	}
	setKilled(b)
}

func setKilled(b *store.Bundle) {
	b.State, b.Worker = codalab.StateKilled, store.Worker{}
	b.Metadata["failure_message"] = cmp.Or(b.KillMessage, codalab.KillRequested)
	if b.DataSize != 0 && b.Contents == "" {
		b.SetDataSize(0)
	}
}
