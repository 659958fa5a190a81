package metrics

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/exposition"
	"github.com/cl-slurm/cl-slurm/pilot"
)

var epoch = time.Unix(1_800_000_000, 0)

func newMetrics(tag string) (*pilot.Manager, *Metrics) {
	m := &pilot.Manager{Shape: pilot.Shape{CPUs: 4, GPUs: 1, Memory: 8 << 30, Tag: tag}, Min: 1, Max: 10, Now: func() time.Time { return epoch }}
	return m, Of(m)
}

// wantSamples compares all samples but the buckets of histograms with a text.
func wantSamples(t *testing.T, m *Metrics, want string) {
	t.Helper()
	var made exposition.Text
	m.AddTo(&made)
	var text strings.Builder
	if _, err := made.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "_bucket{") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	if diff := cmp.Diff(slices.Sorted(strings.Lines(want)), lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A scrape may come before the first pass: the manager waits for Slurm or for the server.
func TestManagerWithoutAPassIsShown(t *testing.T) {
	t.Parallel()
	_, m := newMetrics("")
	wantSamples(t, m, `cl_worker_manager_collected_timestamp_seconds 1.8e+09
cl_worker_manager_pass_duration_seconds_sum 0
cl_worker_manager_pass_duration_seconds_count 0
cl_worker_manager_worker_cpus 4
cl_worker_manager_worker_gpus 1
cl_worker_manager_worker_memory_bytes 8.589934592e+09
cl_worker_manager_workers_max 10
cl_worker_manager_workers_min 1
`)
}

func TestLastPassIsShown(t *testing.T) {
	t.Parallel()
	manager, m := newMetrics("gpu")
	manager.Observe(pilot.State{At: epoch.Add(-time.Hour), Took: 3 * time.Second})
	manager.Observe(pilot.State{
		At: epoch.Add(-time.Second), Took: 50 * time.Millisecond,
		Workers: map[pilot.WorkerState]int{pilot.WorkerBusy: 3}, Waiting: map[string]int{"gpu": 2}, LeftOut: map[pilot.Lack]int{pilot.LackGPUs: 1},
		WaitingSince: epoch.Add(-time.Minute), Server: pilot.Contact{Answered: epoch.Add(-2 * time.Second)}, Backend: pilot.Contact{Failures: 7},
		Obstacles: map[pilot.Obstacle]bool{pilot.MostWorkers: true}, Starts: map[pilot.StartResult]int{pilot.StartRefused: 4},
		Ends: map[pilot.EndResult]int{pilot.EndStuck: 1}, Ran: time.Hour,
	})
	wantSamples(t, m, `cl_worker_manager_allocated_seconds_total{resource="cpu"} 14400
cl_worker_manager_allocated_seconds_total{resource="gpu"} 3600
cl_worker_manager_allocated_seconds_total{resource="worker"} 3600
cl_worker_manager_backend_answered_timestamp_seconds 0
cl_worker_manager_bundles_left_out{lack="cpus"} 0
cl_worker_manager_bundles_left_out{lack="gpus"} 1
cl_worker_manager_bundles_left_out{lack="memory"} 0
cl_worker_manager_bundles_left_out{lack="tag"} 0
cl_worker_manager_bundles_left_out{lack="time"} 0
cl_worker_manager_bundles_waiting{tag=""} 0
cl_worker_manager_bundles_waiting{tag="gpu"} 2
cl_worker_manager_collected_timestamp_seconds 1.8e+09
cl_worker_manager_obstacle{kind="backend_unanswered"} 0
cl_worker_manager_obstacle{kind="max_workers"} 1
cl_worker_manager_obstacle{kind="name_taken"} 0
cl_worker_manager_obstacle{kind="server_unanswered"} 0
cl_worker_manager_obstacle{kind="starts_refused"} 0
cl_worker_manager_obstacle{kind="stuck_worker"} 0
cl_worker_manager_obstacle{kind="tidy_failed"} 0
cl_worker_manager_oldest_waiting_bundle_timestamp_seconds 1.79999994e+09
cl_worker_manager_other_workers 0
cl_worker_manager_pass_duration_seconds_sum 3.05
cl_worker_manager_pass_duration_seconds_count 2
cl_worker_manager_pass_ended_timestamp_seconds 1.799999999e+09
cl_worker_manager_server_answered_timestamp_seconds 1.799999998e+09
cl_worker_manager_starts_total{result="accepted"} 0
cl_worker_manager_starts_total{result="refused"} 4
cl_worker_manager_starts_total{result="refused_for_now"} 0
cl_worker_manager_starts_total{result="unanswered"} 0
cl_worker_manager_unanswered_total{to="backend"} 7
cl_worker_manager_unanswered_total{to="server"} 0
cl_worker_manager_worker_cpus 4
cl_worker_manager_worker_gpus 1
cl_worker_manager_worker_memory_bytes 8.589934592e+09
cl_worker_manager_workers{state="busy"} 3
cl_worker_manager_workers{state="ending"} 0
cl_worker_manager_workers{state="idle"} 0
cl_worker_manager_workers{state="lost"} 0
cl_worker_manager_workers{state="pending"} 0
cl_worker_manager_workers{state="silent"} 0
cl_worker_manager_workers{state="starting"} 0
cl_worker_manager_workers{state="stuck"} 0
cl_worker_manager_workers_ended_total{result="cancelled"} 0
cl_worker_manager_workers_ended_total{result="never_reached"} 0
cl_worker_manager_workers_ended_total{result="stuck"} 1
cl_worker_manager_workers_ended_total{result="unlisted"} 0
cl_worker_manager_workers_ended_total{result="worked"} 0
cl_worker_manager_workers_max 10
cl_worker_manager_workers_min 1
`)
}
