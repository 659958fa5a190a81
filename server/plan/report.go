package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// finishedStatus is the run_status of a run that has ended (codalab/model/bundle_model.py).
const finishedStatus = "Finished"

// mostSeconds bounds the time that a worker reports, some three hundred years.
const mostSeconds = 1e10

// ApplyReport applies its worker's report to a run. The report of a run's end ends it. If the run is charged,
// its time counts against the owner's quota (transition_bundle_running, transition_bundle_finalizing).
func (b Bundle) ApplyReport(report codalab.RunReport, now time.Time, charged bool) Bundle {
	if !b.State.OnWorker() {
		return b
	}
	report = plainReport(report)
	next := b.own()
	switch report.State {
	case codalab.StateStaged:
		next.unassign()
		return next
	case codalab.StatePreparing, codalab.StateRunning:
		next.State = report.State
		next.copyReport(report, now, charged)
		return next
	case codalab.StateFinalizing:
		next.copyReport(report, now, charged)
		next.finish(report)
		return next
	default: // workers report no other states
	}
	return b
}

// plainReport removes control characters from the texts of a report. Any user may run workers, and
// other users' terminals show the texts.
func plainReport(report codalab.RunReport) codalab.RunReport {
	report.RunStatus, report.Remote, report.JobHandle = termtext.OneLine(report.RunStatus), termtext.OneLine(report.Remote), termtext.OneLine(report.JobHandle)
	if report.PinnedReference != nil {
		reference := termtext.OneLine(*report.PinnedReference)
		report.PinnedReference = &reference
	}
	if report.FailureMessage != nil {
		message := termtext.Escape(*report.FailureMessage)
		report.FailureMessage = &message
	}
	attempts := make([]string, 0, len(report.Attempts))
	for _, a := range report.Attempts[max(0, len(report.Attempts)-mostAttempts):] {
		attempts = append(attempts, termtext.OneLine(a))
	}
	report.Attempts = attempts
	return report
}

// mostAttempts bounds the attempts in a bundle's remote_history.
const mostAttempts = 50

// copyReport copies a report into the metadata.
func (b *Bundle) copyReport(report codalab.RunReport, now time.Time, charged bool) {
	m := b.Metadata
	m["run_status"] = report.RunStatus
	m["last_updated"] = now.Unix()
	if charged {
		b.ChargedTime = max(0, int64(min(report.ContainerTimeTotal, mostSeconds))-int64(max(0, m.Float("time"))))
	}
	m["time"] = report.ContainerTimeTotal
	m["time_user"] = report.ContainerTimeUser
	m["time_system"] = report.ContainerTimeSystem
	m["remote"] = report.Remote
	m["cpu_usage"] = report.CPUUsage
	m["memory_usage"] = report.MemoryUsage
	if report.MemoryMax > 0 {
		m["memory_max"] = float64(report.MemoryMax)
	}
	if report.JobHandle != "" { // the last job's stays until there is another one
		m["job_handle"] = report.JobHandle
	}
	if hosts := m.Strings("remote_history"); len(report.Attempts) > 0 { // after the host of the claim
		m["remote_history"] = append(hosts[:min(len(hosts), 1):min(len(hosts), 1)], report.Attempts...)
	}
	if report.Cost != nil {
		cost := report.Cost.Bounded()
		if cost.EnergyJoules == 0 && b.Cost != nil {
			cost.EnergyJoules = b.Cost.EnergyJoules // of earlier attempts: NoteEnergy
		}
		b.Cost = &cost
	}
	b.notePlatform(report.Platform)
	if b.Contents == "" { // otherwise data_size is the size of the contents
		b.setSize(report.DiskUtilization)
	}
	if report.PinnedReference != nil {
		m["docker_image"] = *report.PinnedReference
	}
	for stage, key := range map[string]string{
		codalab.StagePreparing: "time_preparing", codalab.StageRunning: "time_running",
		codalab.StageCleaningUp: "time_cleaning_up", codalab.StageUploading: "time_uploading_results",
	} {
		if elapsed := report.Profile[stage].Elapsed; elapsed != nil {
			m[key] = *elapsed
		}
	}
}

// notePlatform notes what the command of the present attempt runs on. That of an earlier attempt stays until the worker tells
// about the present one, as its job does.
func (b *Bundle) notePlatform(reported *codalab.Platform) {
	if reported == nil {
		return
	}
	p := reported.Bounded(termtext.OneLine)
	if b.Platform = &p; p.IsZero() {
		b.Platform = nil
	}
}

// NoteEnergy notes the energy of all attempts of a run. Its worker may tell it after the end, which stays as it is. A run
// whose worker has reported no cost has none.
func (b Bundle) NoteEnergy(joules int64) Bundle {
	if b.Cost == nil {
		return b
	}
	cost := *b.Cost
	cost.EnergyJoules = joules
	cost = cost.Bounded()
	b.Cost = &cost
	return b
}

// finish gives a run its final state (transition_bundle_finished).
func (b *Bundle) finish(report codalab.RunReport) {
	message := ""
	if report.FailureMessage != nil {
		message = *report.FailureMessage
	}
	if report.ExitCode != nil {
		b.Metadata["exitcode"] = *report.ExitCode
		if message == "" && *report.ExitCode != 0 {
			message = fmt.Sprintf("Exit code %d", *report.ExitCode)
		}
	}
	if message != "" {
		b.Metadata["failure_message"] = message
	}
	switch {
	case strings.Contains(message, codalab.KillRequested):
		b.end(codalab.StateKilled)
	case message != "":
		b.end(codalab.StateFailed)
	default:
		b.end(codalab.StateReady)
	}
	b.Metadata["run_status"] = finishedStatus
}

// SameReport compares what must be stored at once of two reports. Times, CPU and memory need not be. The disk use
// must be: the owner's disk quota is enforced by it, and a run can fill a disk in the time that other usage waits.
func SameReport(a, b codalab.RunReport) bool {
	return a.State == b.State && a.RunStatus == b.RunStatus && a.Remote == b.Remote && a.JobHandle == b.JobHandle && slices.Equal(a.Attempts, b.Attempts) &&
		a.DiskUtilization == b.DiskUtilization &&
		(a.PinnedReference == nil) == (b.PinnedReference == nil) && len(a.Profile) == len(b.Profile)
}
