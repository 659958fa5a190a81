package plan

import (
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// preparingStatus is the run_status of a claimed run until its worker's first report
// (codalab/model/bundle_model.py).
const preparingStatus = "Waiting for worker to download bundle dependencies and Docker image to run the bundle."

// Assign assigns a staged run to a worker (codalab/model/bundle_model.py: transition_bundle_starting).
func (b Bundle) Assign(to Worker, now time.Time) Bundle {
	if b.State != codalab.StateStaged {
		return b
	}
	b = b.own()
	b.stage()
	b.State, b.Worker, b.Assigned = codalab.StateStarting, to, now
	b.Metadata["last_updated"] = now.Unix()
	return b
}

// Claim gives an assigned run to its worker. It also returns whether the worker has the run, which is
// true for a repeated claim, too. preemptible means that the worker may go at any time and not come
// back (transition_bundle_preparing).
func (b Bundle) Claim(by Worker, start codalab.StartBundle, preemptible bool) (Bundle, bool) {
	if b.Worker != by || !b.State.OnWorker() {
		return b, false
	}
	if b.State != codalab.StateStarting {
		return b, true
	}
	b = b.own()
	host := termtext.OneLine(start.Hostname)
	hosts := b.Metadata.Strings("remote_history")
	b.State = codalab.StatePreparing
	b.Metadata["run_status"] = preparingStatus
	b.Metadata["started"] = start.StartTime
	b.Metadata["last_updated"] = start.StartTime
	b.Metadata["remote"] = host
	b.Metadata["remote_history"] = append(hosts[:len(hosts):len(hosts)], host)
	b.Metadata["on_preemptible_worker"] = preemptible
	return b, true
}

// Unclaim stages an assigned run again that its worker has not claimed in time.
func (b Bundle) Unclaim() Bundle {
	if b.State != codalab.StateStarting {
		return b
	}
	b = b.own()
	b.unassign()
	return b
}

// GoOffline takes a run offline whose worker does not report it. The worker may come back with it.
// A preemptible worker does not come back, so its run is staged again (codalab/model/bundle_model.py:
// transition_bundle_worker_offline).
func (b Bundle) GoOffline(now time.Time) Bundle {
	if b.State != codalab.StatePreparing && b.State != codalab.StateRunning {
		return b // no worker runs it
	}
	b = b.own()
	if b.Metadata.Bool("on_preemptible_worker") {
		b.unassign()
		return b
	}
	b.State = codalab.StateWorkerOffline
	b.Metadata["last_updated"] = now.Unix()
	return b
}

// unassign stages a run again and removes what its worker reported (transition_bundle_staged). A run
// that is to be killed ends instead.
func (b *Bundle) unassign() {
	for _, key := range codalab.MetadataKeys(codalab.TypeRun) {
		if key.Generated && key.Key != "actions" && key.Key != "created" {
			delete(b.Metadata, key.Key)
		}
	}
	b.Metadata["remote_history"] = []string{}
	b.Cost, b.Platform = nil, nil
	b.stage()
	b.Contents, b.Entries, b.DataSize = "", 0, 0 // and no data_size, which is a generated key
	b.Worker, b.Assigned = Worker{}, time.Time{}
	if b.KillMessage != "" {
		b.endKilled()
	}
}
