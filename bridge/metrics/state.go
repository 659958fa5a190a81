package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// state describes what is read from the bridge at each collection.
type state struct {
	written, bundles, oldest, checkIn, observed, obstacle, nodes, read *prometheus.Desc
}

func newState() state {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels, nil)
	}
	return state{
		written:  desc("collected_timestamp_seconds", "When these numbers were collected. An old time in a file shows that no bridge runs."),
		bundles:  desc("bundles", "Bundles of the ledger by queue and phase. Those that are done stay for a day.", "queue", "phase"),
		oldest:   desc("oldest_waiting_bundle_timestamp_seconds", "When the server offered the bundle that has waited longest for its job's begin; absent if none waits.", "queue"),
		checkIn:  desc("check_in_answered_timestamp_seconds", "When the server last answered a check-in of the queue; absent before the first answer.", "queue"),
		observed: desc("slurm_observed_timestamp_seconds", "When Slurm last gave a complete list of jobs; 0 if it has not since the start."),
		obstacle: desc("obstacle", "1 while this kind of obstacle keeps bundles from going on, else 0. cl-bridge status has the sentence.", "kind"),
		nodes:    desc("nodes_avoided", "Nodes that get no jobs because commands did not start on them."),
		read:     desc("downloaded_bytes_total", "Bytes of images and dependencies that were downloaded."),
	}
}

func (s state) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.written, s.bundles, s.oldest, s.checkIn, s.observed, s.obstacle, s.nodes, s.read} {
		out <- d
	}
}

// collect reads a bridge; nil for none yet.
func (s state) collect(out chan<- prometheus.Metric, now time.Time, b *bridge.Bridge, read int64) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(s.written, seconds(now))
	if b == nil {
		return
	}
	s.countBundles(gauge, b)
	for queue, at := range b.Answers() {
		gauge(s.checkIn, seconds(at), queue)
	}
	c := b.Condition()
	gauge(s.observed, seconds(c.Observed))
	gauge(s.nodes, float64(len(c.Nodes)))
	for kind, there := range Obstacles(c) {
		value := 0.0
		if there {
			value = 1
		}
		gauge(s.obstacle, value, kind)
	}
	out <- prometheus.MustNewConstMetric(s.read, prometheus.CounterValue, float64(read))
}

// countBundles shows the number of each queue's bundles in each phase, and since when one waits.
func (s state) countBundles(gauge func(d *prometheus.Desc, value float64, labels ...string), b *bridge.Bridge) {
	counts, oldest := map[string]map[plan.Phase]int{}, map[string]time.Time{}
	of := func(queue string) map[plan.Phase]int {
		if counts[queue] == nil {
			counts[queue] = map[plan.Phase]int{}
			for _, phase := range plan.Phases() {
				counts[queue][phase] = 0
			}
		}
		return counts[queue]
	}
	for queue := range b.Queues() {
		of(queue)
	}
	for queue, n := range b.Resting() {
		of(queue)[plan.Done] += n
	}
	for _, r := range b.Rows() {
		of(r.Queue)[r.Phase]++
		switch r.Phase {
		case plan.Claiming, plan.Staging, plan.Submitting, plan.Queued:
			if at, ok := oldest[r.Queue]; !ok || r.OfferedAt.Before(at) {
				oldest[r.Queue] = r.OfferedAt
			}
		case plan.Running, plan.Stopping, plan.Collecting, plan.Finalizing, plan.Done:
		}
	}
	for queue, phases := range counts {
		for phase, n := range phases {
			gauge(s.bundles, float64(n), queue, string(phase))
		}
	}
	for queue, at := range oldest {
		gauge(s.oldest, seconds(at), queue)
	}
}

// Obstacles returns each kind of obstacle, and whether a bridge's condition has it.
func Obstacles(c bridge.Condition) map[string]bool {
	return map[string]bool{
		"slurm_unanswered":      c.Slurm != "",
		"slurm_not_seen":        c.Open && c.Observed.IsZero(),
		"slurm_settings":        c.SettingsFailure != "" && c.Settings == nil,
		"queue_held":            len(c.Held) > 0,
		"node_avoided":          len(c.Nodes) > 0,
		"server_refuses":        len(c.Server) > 0,
		"server_late":           len(c.LateQueues) > 0,
		"disk_low":              c.DiskLow != "",
		"configuration_refused": c.Refused != "",
	}
}

// seconds returns a time as Prometheus has it; 0 for the zero time.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
