package stocktest

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// resources are a run's requests, or a worker's free resources
// (codalab/worker/bundle_state.py: RunResources).
type resources struct {
	cpus, gpus, memory, disk int64
	tag                      string
	exclusive                bool
	runsLeft                 int64 // -1 for a run
}

// offer is a worker with its free resources.
type offer struct {
	resources
	row *workerRow
}

// requestsOf returns a run's requests, with defaults (codalab/server/bundle_manager.py:
// _compute_bundle_resources).
func requestsOf(b *bundle) resources {
	r := resources{
		cpus: max(b.metadata.Int("request_cpus"), 1), gpus: b.metadata.Int("request_gpus"), memory: 2 << 30,
		tag: b.metadata.String("request_queue"), runsLeft: -1,
	}
	if n, err := codalab.ParseSize(b.metadata.String("request_memory")); err == nil {
		r.memory = n
	}
	if n, err := codalab.ParseSize(b.metadata.String("request_disk")); err == nil {
		r.disk = n
	}
	return r
}

// seconds returns a run's requested time as Python writes it: a float, or 0 without a
// request.
func seconds(b *bundle) json.Number {
	d, err := codalab.ParseDuration(b.metadata.String("request_time"))
	if err != nil {
		return "0"
	}
	text := strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return json.Number(text)
}

// image is the image that a run asks for (codalab/server/bundle_manager.py:
// _get_docker_image).
func image(b *bundle) string {
	name := b.metadata.String("request_docker_image")
	switch {
	case name == "" && b.metadata.Int("request_gpus") > 0:
		name = "codalab/default-gpu:latest"
	case name == "":
		name = "codalab/default-cpu:latest"
	case !strings.Contains(name, ":"):
		name += ":latest"
	}
	return name
}

// runMessage is codalab/server/bundle_manager.py: _construct_run_message.
func runMessage(b *bundle) any {
	asks := requestsOf(b)
	dependencies := []any{}
	for _, d := range b.dependencies {
		dependencies = append(dependencies, map[string]any{
			"parent_name": d.ParentName, "parent_path": d.ParentPath, "parent_uuid": d.ParentUUID,
			"child_path": d.ChildPath, "child_uuid": d.ChildUUID, "location": nil,
		})
	}
	return map[string]any{
		"type": codalab.MessageRun,
		"bundle": map[string]any{
			"uuid": b.uuid, "bundle_type": b.kind, "owner_id": b.owner, "command": b.command, "state": b.state, "frozen": nil,
			"is_anonymous": false, "metadata": maps.Clone(b.metadata), "args": "", "location": nil, "dependencies": dependencies,
		},
		"resources": map[string]any{
			"cpus": asks.cpus, "gpus": asks.gpus, "docker_image": image(b), "time": seconds(b), "memory": asks.memory, "disk": asks.disk,
			"network": b.metadata.Bool("request_network"), "tag": asks.tag, "tag_exclusive": false, "runs_left": nil,
		},
	}
}

// fits reports whether a worker has all that a run asks for (codalab/worker/bundle_state.py:
// dominates).
func (r resources) fits(run resources) bool {
	if run.tag == "" && r.exclusive && r.tag != "" {
		return false
	}
	if run.tag != "" && r.tag != strings.TrimPrefix(run.tag, "tag=") {
		return false
	}
	return r.runsLeft != 0 && r.cpus >= run.cpus && r.gpus >= run.gpus && r.memory >= run.memory && r.disk >= run.disk
}

// offerOf returns a worker's free resources; the caller holds the lock. Disk requests of its
// runs are not deducted (codalab/server/bundle_manager.py: _deduct_worker_resources).
func (s *Server) offerOf(w *workerRow) *offer {
	o := &offer{row: w, resources: resources{
		cpus: w.CPUs, gpus: w.GPUs, memory: w.MemoryBytes, disk: w.FreeDiskBytes,
		tag: w.Tag, exclusive: w.TagExclusive, runsLeft: w.ExitAfterNumRuns,
	}}
	for _, uuid := range s.held(w) {
		if b := s.bundle(uuid); b != nil {
			o.deduct(requestsOf(b))
		}
	}
	return o
}

func (o *offer) deduct(r resources) {
	o.cpus -= r.cpus
	o.gpus -= r.gpus
	o.memory -= r.memory
}
