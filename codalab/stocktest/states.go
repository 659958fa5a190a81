package stocktest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

const waitingForWorker = "Bundle's dependencies are all ready. Waiting for the bundle to be assigned to a worker to be run."

// The changes of a run's state (codalab/model/bundle_model.py: transition_*). Their callers
// hold the lock.

// starting gives a run to a worker.
func (s *Server) starting(b *bundle, w *workerRow) {
	b.state = codalab.StateStarting
	b.set(codalab.Metadata{"last_updated": time.Now().Unix()})
	s.runs[b.uuid] = w
}

// restage stages a run again, in whatever state it is: it removes the run row and all that a
// worker has reported of the run.
func (s *Server) restage(b *bundle) {
	b.state = codalab.StateStaged
	for _, k := range codalab.MetadataKeys(b.kind) {
		if k.Generated && k.Key != "actions" && k.Key != "created" {
			delete(b.metadata, k.Key)
		}
	}
	b.set(codalab.Metadata{"staged_status": waitingForWorker, "remote_history": []string{}})
	delete(s.runs, b.uuid)
}

// preparing answers a claim.
func (s *Server) preparing(b *bundle, w *workerRow, start codalab.StartBundle) bool {
	if w == nil || s.runs[b.uuid] != w {
		return false
	}
	b.state = codalab.StatePreparing
	b.set(codalab.Metadata{
		"run_status": "Waiting for worker to download bundle dependencies and Docker image to run the bundle.",
		"started":    start.StartTime, "last_updated": start.StartTime, "remote": start.Hostname, "on_preemptible_worker": w.Preemptible,
		"remote_history": append(slices.Clone(b.metadata.Strings("remote_history")), start.Hostname),
	})
	return true
}

// offline makes a run worker_offline, or stages it again if its worker was preemptible.
func (s *Server) offline(b *bundle) {
	b.state = codalab.StateWorkerOffline
	if b.metadata.Bool("on_preemptible_worker") {
		b.state = codalab.StateStaged
	}
	b.set(codalab.Metadata{"last_updated": time.Now().Unix()})
	delete(s.runs, b.uuid)
}

// finished brings a run to its final state, in any state. The final state depends on the
// metadata when the manager began to acknowledge the run.
func (s *Server) finished(b *bundle, known codalab.Metadata) {
	failure := known.String("failure_message")
	switch {
	case strings.Contains(failure, codalab.KillRequested):
		b.state = codalab.StateKilled
	case failure != "" || known.Int("exitcode") != 0:
		b.state = codalab.StateFailed
	default:
		b.state = codalab.StateReady
	}
	b.set(codalab.Metadata{"run_status": "Finished", "last_updated": time.Now().Unix()})
	delete(s.runs, b.uuid)
}

// reported is a worker's report of a run. Most of its keys must be there, and some of the
// values must have their types (codalab/worker/bundle_state.py: BundleCheckinState).
type reported struct {
	UUID           string                         `json:"uuid"`
	RunStatus      *string                        `json:"run_status"`
	Total          *float64                       `json:"container_time_total"`
	User           *float64                       `json:"container_time_user"`
	System         *float64                       `json:"container_time_system"`
	DockerImage    *string                        `json:"docker_image"`
	State          codalab.State                  `json:"state"`
	Remote         *string                        `json:"remote"`
	ExitCode       *int64                         `json:"exitcode"`
	FailureMessage *string                        `json:"failure_message"`
	Profile        map[string]map[string]*float64 `json:"bundle_profile_stats"`
	CPU            *float64                       `json:"cpu_usage"`
	Memory         *float64                       `json:"memory_usage"`
	Disk           *int64                         `json:"disk_utilization"`
}

func readReport(data json.RawMessage) (reported, error) {
	var r reported
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return r, fmt.Errorf("decode report: %w", err)
	}
	for _, k := range []string{
		"uuid", "run_status", "bundle_start_time", "container_time_total", "container_time_user", "container_time_system",
		"docker_image", "state", "remote", "exitcode", "failure_message",
	} {
		if _, ok := keys[k]; !ok {
			return r, fmt.Errorf("the report lacks %s", k)
		}
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("decode report: %w", err)
	}
	return r, nil
}

// applyReport applies a report, from any worker and in any state of the run
// (codalab/model/bundle_model.py: bundle_checkin). It silently drops a report that it cannot
// use.
func (s *Server) applyReport(b *bundle, r reported, w *workerRow) {
	switch r.State {
	case codalab.StateStaged:
		s.restage(b)
	case codalab.StatePreparing, codalab.StateRunning:
		s.running(b, r, w)
	case codalab.StateFinalizing:
		if !s.running(b, r, w) {
			return
		}
		if r.FailureMessage == nil && r.ExitCode != nil && *r.ExitCode != 0 {
			words := fmt.Sprintf("Exit code %d", *r.ExitCode)
			r.FailureMessage = &words
		}
		if r.FailureMessage != nil {
			b.set(codalab.Metadata{"failure_message": *r.FailureMessage})
		}
		if r.ExitCode != nil {
			b.set(codalab.Metadata{"exitcode": *r.ExitCode})
		}
	default: // a report of another state is dropped
	}
}

// running is transition_bundle_running. A report that lacks a stage or the disk usage changes
// nothing.
func (s *Server) running(b *bundle, r reported, w *workerRow) bool {
	if r.Disk == nil {
		return false
	}
	changes := codalab.Metadata{
		"run_status": value(r.RunStatus), "last_updated": time.Now().Unix(), "remote": value(r.Remote),
		"time": value(r.Total), "time_user": value(r.User), "time_system": value(r.System), "cpu_usage": value(r.CPU), "memory_usage": value(r.Memory),
	}
	if b.state != codalab.StateFailed {
		changes["data_size"] = *r.Disk
	}
	if r.DockerImage != nil {
		changes["docker_image"] = *r.DockerImage
	}
	for key, stage := range map[string]string{
		"time_preparing": codalab.StagePreparing, "time_running": codalab.StageRunning,
		"time_cleaning_up": codalab.StageCleaningUp, "time_uploading_results": codalab.StageUploading,
	} {
		if r.Profile == nil {
			break
		}
		elapsed, ok := r.Profile[stage]["elapsed"]
		if !ok {
			return false
		}
		changes[key] = value(elapsed)
	}
	if b.state == codalab.StateWorkerOffline {
		s.runs[b.uuid] = w
	}
	b.state = r.State
	b.set(changes)
	return true
}

// value returns *p, or nil for a nil pointer.
func value[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}
