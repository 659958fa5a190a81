package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Reportable reports whether check-ins report the row. A running row waits until its usage is read: without it
// the report would take back the time of an earlier one, and the server would charge that time again (in
// CodaLab's own, codalab/model/bundle_model.py: transition_bundle_running).
func (r Row) Reportable() bool {
	if r.UsageUnread && (r.Phase == Running || r.Phase == Stopping) {
		return false
	}
	return r.Phase != Claiming && r.Phase != Done && !r.Dropped
}

// Report returns the row's part of a check-in of the worker with this id.
func (r Row) Report(worker string) codalab.RunReport {
	report := codalab.RunReport{
		UUID:        r.Bundle,
		RunStatus:   r.RunStatus(),
		BundleStart: codalab.UnixSeconds(r.OfferedAt),
		State:       r.State(),
		Remote:      worker,
		Profile:     r.profile(),
	}
	if node := r.Node(); r.Begun != nil && node != "" {
		report.Remote = node
	}
	if r.Staged != nil && r.Staged.PinnedReference != "" {
		report.PinnedReference = &r.Staged.PinnedReference
	}
	if r.Job.ID != 0 && !r.Standalone {
		report.JobHandle = r.Job.ID.String()
		report.Attempts = strings.Split(strings.TrimPrefix(r.Tried+triedSeparator+r.tried(), triedSeparator), triedSeparator)
	}
	r.usage(&report)
	report.Cost, report.Platform, report.Usage = r.cost(), r.platform(), r.usageNow()
	if v := r.Verdict; v != nil && !v.Restage {
		report.ExitCode = v.ExitCode
		if v.Failure != "" {
			failure := termtext.Escape(v.Failure)
			report.FailureMessage = &failure
		}
	}
	return report
}

// usage fills in the known usage: times are those of all attempts together, because the server charges what they grow
// by, and the rest is the current attempt's. Shares are of the bundle's request: for processors, the average while its
// commands ran; for memory, the present usage, and after the end the peak.
//
// CodaLab's own worker goes on sending its last sample, usually that of a container that is
// gone: 0 (codalab/worker/docker_utils.py: get_container_stats_with_docker_stats). Its server
// keeps the figures of the last report before finalizing (codalab/model/bundle_model.py:
// transition_bundle_running).
func (r Row) usage(report *codalab.RunReport) {
	var u spool.Usage
	var memory int64
	switch {
	case r.Exit != nil:
		u = r.Exit.Usage
		memory = u.MemoryPeak
		report.ContainerTimeTotal = elapsed(r.Exit.CommandStarted, r.Exit.CommandEnded)
	case r.Status != nil:
		u = r.Status.Usage
		memory = u.MemoryBytes
		report.ContainerTimeTotal = elapsed(r.Status.CommandStarted, r.Status.At)
	}
	report.ContainerTimeTotal += r.Spent.CommandSeconds
	u.UserSeconds, u.SystemSeconds = u.UserSeconds+r.Spent.UserSeconds, u.SystemSeconds+r.Spent.SystemSeconds
	report.ContainerTimeUser, report.ContainerTimeSystem = u.UserSeconds, u.SystemSeconds
	report.DiskUtilization, report.MemoryMax = u.DiskBytes, u.MemoryPeak
	if r.Room != nil {
		report.DiskUtilization = 0 // they wait because they take nothing of the quota
	}
	if report.ContainerTimeTotal > 0 {
		report.CPUUsage = (u.UserSeconds + u.SystemSeconds) / report.ContainerTimeTotal / float64(max(r.Resources.CPUs, 1))
	}
	if r.Resources.Memory > 0 { // the job has a little more, for the worker
		report.MemoryUsage = min(1, float64(memory)/float64(r.Resources.Memory))
	}
}

// usageNow returns the current attempt's last sample; nil if there is none.
func (r Row) usageNow() *codalab.UsageNow {
	var u spool.Usage
	switch {
	case r.Exit != nil:
		u = r.Exit.Usage
	case r.Status != nil:
		u = r.Status.Usage
	}
	if u.MemoryBytes == 0 && u.GPU.Samples == 0 {
		return nil
	}
	now := codalab.UsageNow{MemoryBytes: u.MemoryBytes}
	if g := u.GPU; g.Samples > 0 {
		now.GPUs = &codalab.GPUsNow{Busy: g.Busy, MemoryBytes: g.MemoryBytes}
	}
	return &now
}

// elapsed returns the seconds between two moments; 0 if one of them is not known.
func elapsed(from, to time.Time) float64 {
	if from.IsZero() || to.IsZero() {
		return 0
	}
	return to.Sub(from).Seconds()
}

// State returns the row's state on the wire. A bundle is running once its command has begun: a worker may need
// minutes to unpack an image, and nobody can reach the ports of a command before. While the results of a command
// that never began are collected the bundle is running, as with CodaLab's own worker
// (codalab/worker/worker_run_state.py: RunStage, CLEANING_UP).
func (r Row) State() codalab.State {
	if r.GivesBack() {
		return codalab.StateStaged
	}
	switch r.Phase {
	case Collecting:
		return codalab.StateRunning
	case Running, Stopping:
		if r.CommandBegan {
			return codalab.StateRunning
		}
	case Finalizing, Done:
		return codalab.StateFinalizing
	case Claiming, Staging, Submitting, Queued:
	}
	return codalab.StatePreparing
}

// RunStatus returns one sentence for the researcher about the bundle's present work or wait, and further
// ones about its data. It is one line, because servers store it as one.
func (r Row) RunStatus() string {
	status := r.activity()
	if r.Phase != Done {
		status = joinSentences(status, r.Notes())
	}
	return termtext.OneLine(status)
}

// joinSentences joins a sentence and further ones.
func joinSentences(first string, others []string) string {
	if len(others) == 0 {
		return first
	}
	return strings.Join(append([]string{first}, others...), " ")
}

// Notes returns sentences for the researcher about data that is used in place and has changed.
func (r Row) Notes() []string {
	const most = 4 // a line, not a list
	var notes []string
	if r.Staged != nil {
		for _, dep := range r.Staged.Dependencies {
			if dep.Link != nil && dep.Link.Note != "" && len(notes) < most {
				notes = append(notes, dep.Link.Note)
			}
		}
	}
	if r.DataChanged != "" {
		notes = append(notes, r.DataChanged)
	}
	return notes
}

// activity returns a sentence about the bundle's present work or wait.
func (r Row) activity() string {
	switch r.Phase {
	case Claiming:
		if r.Standalone {
			return "Claimed by the worker."
		}
		return "Claimed by the bridge."
	case Staging:
		return r.stagingStatus()
	case Submitting:
		if r.LastFailure != "" {
			return codalab.Sentence(r.LastFailure)
		}
		if r.Progress != "" {
			return r.Progress
		}
		if r.Standalone {
			return "Being started."
		}
		return "Being submitted to Slurm."
	case Queued:
		return r.queuedStatus()
	case Running:
		return r.runningStatus()
	case Stopping:
		return "Being stopped."
	case Collecting:
		switch {
		case r.GivesUp && r.LastFailure == "":
			return "Being stopped: the upload of the results is given up, and only the end of stdout and stderr is sent."
		case r.Room != nil && r.Progress == "":
			return r.Room.status()
		case r.Progress != "":
			return r.Progress
		case r.LastFailure != "":
			if r.GivesUp {
				return "The upload of the results is given up, and the end of stdout and stderr could not be sent yet: " + codalab.Sentence(r.LastFailure)
			}
			return "Uploading results; the last try failed: " + codalab.Sentence(r.LastFailure)
		}
		return "Uploading results."
	case Finalizing:
		if r.GivesBack() {
			return "The worker gives the bundle back; it waits for another worker."
		}
		return "Finalizing bundle."
	case Done:
	}
	return "Finished"
}

func (r Row) stagingStatus() string {
	switch {
	case r.DiskLow != "" && r.Progress == "":
		return "Waiting: " + r.DiskLow + "."
	case r.Held != "" && r.Staged != nil:
		return "Waiting: " + r.Held + "."
	case r.awaitsFiles() && r.Progress == "" && (r.LastFailure == "" || r.LastFailure == r.Resumption.Why):
		return r.resumingStatus()
	case r.AtLimit != "" && r.Staged != nil:
		return "Waiting: " + r.AtLimit + "."
	case r.LastFailure != "" && !r.DueAt.IsZero():
		return "Trying again at " + r.DueAt.Format(time.TimeOnly) + ": " + codalab.Sentence(r.LastFailure)
	case r.Progress != "":
		return r.Progress
	case r.LastFailure != "":
		return "Trying again: " + codalab.Sentence(r.LastFailure)
	case r.Staged != nil:
		if r.Standalone {
			return "Image and dependencies are ready; waiting to be started."
		}
		return "Image and dependencies are ready; waiting to be submitted to Slurm."
	}
	return "Staging the image and the dependencies."
}

func (r Row) queuedStatus() string {
	switch {
	case r.Standalone && r.Job.State == sbatch.StatePending:
		return "Waiting until other runs of the worker have ended."
	case r.Standalone:
		return "Starting the container."
	}
	where := fmt.Sprintf("Slurm job %s", r.Job.ID)
	switch r.Job.State {
	case sbatch.StatePending:
		return r.pendingStatus()
	case sbatch.StateRevoked:
		return where + " is on another cluster of the federation (REVOKED)."
	case sbatch.StateRequeued, sbatch.StateRequeueFed, sbatch.StateExpediting:
		return fmt.Sprintf("Slurm has put job %s back into the queue (%s); it begins later.", r.Job.ID, r.Job.State)
	case sbatch.StateRequeueHold, sbatch.StateSpecialExit, sbatch.StateResvDelHold:
		return fmt.Sprintf("Slurm holds job %s (%s). %s", r.Job.ID, r.Job.State, sbatch.Explain("JobHeldUser").Action)
	case sbatch.StateSuspended, sbatch.StateStopped:
		return fmt.Sprintf("Slurm has suspended job %s before it began (%s); it goes on when Slurm or an administrator resumes it.", r.Job.ID, r.Job.State)
	case sbatch.StateCompleting, sbatch.StateStageOut:
		return fmt.Sprintf("%s is ending on %s (%s).", where, r.Job.Nodes, r.Job.State)
	default: // the other states belong to a job that begins
	}
	if r.Pack && r.Job.State == sbatch.StateRunning {
		return fmt.Sprintf("%s runs on %s with other runs; this one waits for its turn there.", where, r.Job.Nodes)
	}
	return fmt.Sprintf("%s is starting on %s (%s).", where, r.Job.Nodes, r.Job.State)
}

// runningStatus returns the sentence of CodaLab's own worker about a run (codalab/worker/worker_run_state.py:
// transition_from_PREPARING), with the run's job. CodaLab's own server has no other place for the job. Before
// that it names the node that sets the container up.
func (r Row) runningStatus() string {
	where, job := "", ""
	if r.Job.ID != 0 && !r.Standalone {
		job = fmt.Sprintf(" (Slurm job %s)", r.Job.ID)
		if node := r.Node(); node != "" {
			where = " on " + node
		}
	}
	switch {
	case r.Status != nil && r.Status.Stage == spool.StageCopying:
		return "Copying results from the node's own disk to the shared one."
	case r.Job.State == sbatch.StateSuspended || r.Job.State == sbatch.StateStopped:
		return fmt.Sprintf("Slurm has suspended the run%s; it goes on when Slurm or an administrator resumes it.", job)
	case r.hasComeBack():
		return fmt.Sprintf("Slurm has put the run's job %s back into the queue (%s); the bundle does not run a second time in it.", r.Job.ID, backInQueue(r.Job))
	case r.Exit != nil && r.Exit.Terminated: // the reason for its end is not known yet
		return "Being stopped."
	case r.CommandBegan:
		return joinSentences("Running job in container"+job+".", append(r.changedTime(), r.idleGPUs()...))
	case r.Exit != nil:
		return "Being stopped."
	case r.Status != nil && r.Status.Waits != "":
		return "Waiting: " + codalab.Sentence(r.Status.Waits)
	case r.Status != nil && r.Status.Stage == spool.StageUnpacking:
		return "Unpacking the image" + where + job + "."
	}
	return "Setting the container up" + where + job + "."
}

func (r Row) profile() map[string]codalab.StageTimes {
	t := r.Times
	starts := []time.Time{t.Preparing, r.RunningAt, t.CleaningUp, t.Uploading, t.Finalizing}
	profile := map[string]codalab.StageTimes{}
	for i, stage := range codalab.Stages() {
		profile[stage] = codalab.NewStageTimes(starts[i], firstAfter(starts[i+1:]))
	}
	return profile
}

// firstAfter returns the first time of a list that is not zero.
func firstAfter(times []time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}
