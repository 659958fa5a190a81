package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// finishedStatus is the run_status of a run that has ended (codalab/model/bundle_model.py).
const finishedStatus = "Finished"

const (
	// mostDisk bounds the disk use that a worker reports, in bytes.
	mostDisk = 1 << 50
	// mostSeconds bounds the time that a worker reports, some three hundred years.
	mostSeconds = 1e10
)

// Report applies its worker's report to a run. The report of a run's end ends it. If the run is charged,
// its time counts against the owner's quota (transition_bundle_running, transition_bundle_finalizing).
func (b Bundle) Report(run codalab.Run, now time.Time, charged bool) Bundle {
	if !b.State.OnWorker() {
		return b
	}
	run = plainReport(run)
	next := b.own()
	switch run.State {
	case codalab.StateStaged:
		next.unassign()
		return next
	case codalab.StatePreparing, codalab.StateRunning:
		next.State = run.State
		next.copyReport(run, now, charged)
		return next
	case codalab.StateFinalizing:
		next.copyReport(run, now, charged)
		next.finish(run)
		return next
	default: // workers report no other states
	}
	return b
}

// plainReport removes control characters from the texts of a report. Any user may run workers, and
// other users' terminals show the texts.
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

// copyReport copies a report into the metadata.
func (b *Bundle) copyReport(run codalab.Run, now time.Time, charged bool) {
	m := b.Metadata
	m["run_status"] = run.RunStatus
	m["last_updated"] = now.Unix()
	if charged {
		b.ChargedTime = max(0, int64(min(run.ContainerTimeTotal, mostSeconds))-int64(max(0, m.Float("time"))))
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
		b.setSize(min(max(0, run.DiskUtilization), mostDisk))
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
func (b *Bundle) finish(run codalab.Run) {
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
		b.setSize(0)
	}
}

// SameReport compares what a user would notice of two reports. Times and usage do not count, because
// they need not be stored with every check-in.
func SameReport(a, b codalab.Run) bool {
	return a.State == b.State && a.RunStatus == b.RunStatus && a.Remote == b.Remote && a.JobHandle == b.JobHandle &&
		a.DiskUtilization == b.DiskUtilization &&
		(a.DockerImage == nil) == (b.DockerImage == nil) && len(a.Profile) == len(b.Profile)
}
