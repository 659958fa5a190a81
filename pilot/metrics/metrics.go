// Package metrics shows what a manager of workers does, for Prometheus.
//
// A [Metrics] gets the state of the manager after each of its passes, and shows the last one. To collect it asks nobody, so
// that it may be collected while the server or the batch system does not answer.
//
// Names follow Prometheus' conventions: the prefix cl_worker_manager_, base units, and _total for what only grows. A time is
// a timestamp, of which a rule takes the age. Labels have few values, never a bundle, a user or a worker.
package metrics

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/exposition"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// Prefix begins the names of all metrics.
const Prefix = "cl_worker_manager_"

// Metrics has the metrics of one manager. It is safe for concurrent use.
type Metrics struct {
	now      func() time.Time
	shape    pilot.Shape
	min, max int
	state    atomic.Pointer[pilot.State]

	took *exposition.Histogram
}

// Of returns the metrics of a manager, and sets its Observe. The manager's other fields are set.
func Of(m *pilot.Manager) *Metrics {
	made := &Metrics{now: m.Now, shape: m.Shape, min: m.Min, max: m.Max, took: exposition.NewHistogram(0.01, 4, 8)}
	m.Observe = made.observe
	return made
}

// observe takes the state of the manager after a pass.
func (m *Metrics) observe(s pilot.State) {
	m.took.Observe(s.Took.Seconds())
	m.state.Store(&s)
}

// descs describe the metrics.
type descs struct {
	took, collected, passed, workers, others, least, most, cpus, gpus, memory, waiting, oldest, leftOut, server, backend, failures, obstacle, starts, ends, allocated exposition.Desc
}

func newDescs() descs {
	gauge := func(name, help string, labels ...string) exposition.Desc {
		return exposition.Desc{Name: Prefix + name, Help: help, Kind: exposition.Gauge, Labels: labels}
	}
	counter := func(name, help string, labels ...string) exposition.Desc {
		return exposition.Desc{Name: Prefix + name, Help: help, Kind: exposition.Counter, Labels: labels}
	}
	return descs{
		took:      exposition.HistogramDesc(Prefix+"pass_duration_seconds", "Duration of the passes, in which the manager asks the server and the batch system and starts workers."),
		collected: gauge("collected_timestamp_seconds", "When these numbers were collected. An old time in a file shows that no manager runs."),
		passed:    gauge("pass_ended_timestamp_seconds", "When the last pass ended, with or without success; absent before the first."),
		workers:   gauge("workers", "Workers of the manager by their state.", "state"),
		others:    gauge("other_workers", "Workers that count against the maximum, though the manager has not started them (--job-filter)."),
		least:     gauge("workers_min", "The least number of workers (--min-workers)."),
		most:      gauge("workers_max", "The largest number of workers (--max-workers)."),
		cpus:      gauge("worker_cpus", "CPUs of one worker, as the manager requests them."),
		gpus:      gauge("worker_gpus", "GPUs of one worker, as the manager requests them."),
		memory:    gauge("worker_memory_bytes", "Memory of one worker, as the manager requests it."),
		waiting:   gauge("bundles_waiting", "Staged bundles that wait for a worker of the manager, by the tag that they ask for: that of the workers, none, or other.", "tag"),
		oldest:    gauge("oldest_waiting_bundle_timestamp_seconds", "When the manager first saw the bundle that has waited longest for a worker; absent if none waits."),
		leftOut:   gauge("bundles_left_out", "Staged bundles that no worker of the manager can take, by what it lacks: tag, cpus, gpus, memory, time.", "lack"),
		server:    gauge("server_answered_timestamp_seconds", "When the server last answered the manager; 0 if it has not since the start."),
		backend:   gauge("backend_answered_timestamp_seconds", "When the batch system last gave a complete list of workers; 0 if it has not since the start."),
		failures:  counter("unanswered_total", "Questions to the server and to the batch system without an answer.", "to"),
		obstacle:  gauge("obstacle", "1 while this kind of obstacle keeps workers from being started, else 0. The log has the sentence.", "kind"),
		starts:    counter("starts_total", "Starts of workers by their result: accepted, refused, refused_for_now, or unanswered (the worker may start).", "result"),
		ends:      counter("workers_ended_total", "Workers that have ended, by the result of their lives: worked (it has reached the server), cancelled, never_reached, stuck, unlisted.", "result"),
		allocated: counter("allocated_seconds_total", "Time for which the batch system has run workers, as the manager has seen it: of workers, and of their CPUs and GPUs.", "resource"),
	}
}

// Descs describes all metrics.
func Descs() []exposition.Desc {
	d := newDescs()
	return []exposition.Desc{
		d.took, d.collected, d.passed, d.workers, d.others, d.least, d.most, d.cpus, d.gpus, d.memory, d.waiting, d.oldest, d.leftOut,
		d.server, d.backend, d.failures, d.obstacle, d.starts, d.ends, d.allocated,
	}
}

// AddTo adds the metrics to a text.
func (m *Metrics) AddTo(t *exposition.Text) {
	p := page{t, newDescs()}
	p.AddHistogram(p.took, m.took.Counts())
	p.Add(p.collected, timestamp(m.now()))
	p.Add(p.least, float64(m.min))
	p.Add(p.most, float64(m.max))
	p.Add(p.cpus, float64(m.shape.CPUs))
	p.Add(p.gpus, float64(m.shape.GPUs))
	p.Add(p.memory, float64(m.shape.Memory))
	if s := m.state.Load(); s != nil {
		m.showBundles(p, s)
		m.showWorkers(p, s)
		m.showAnswers(p, s)
	}
}

// page is a text to which metrics are added.
type page struct {
	*exposition.Text
	descs
}

func (m *Metrics) showBundles(p page, s *pilot.State) {
	tags := map[string]int{"": 0, m.shape.Tag: 0} // a rule sees the first one, too
	for tag, n := range s.Waiting {
		tags[tag] = n
	}
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		p.Add(p.waiting, float64(tags[tag]), tag)
	}
	if !s.WaitingSince.IsZero() {
		p.Add(p.oldest, timestamp(s.WaitingSince))
	}
	for _, lack := range pilot.Lacks() {
		p.Add(p.leftOut, float64(s.LeftOut[lack]), string(lack))
	}
}

func (m *Metrics) showWorkers(p page, s *pilot.State) {
	for _, state := range pilot.WorkerStates() {
		p.Add(p.workers, float64(s.Workers[state]), string(state))
	}
	p.Add(p.others, float64(s.Others))
	for _, result := range pilot.StartResults() {
		p.Add(p.starts, float64(s.Starts[result]), string(result))
	}
	for _, result := range pilot.EndResults() {
		p.Add(p.ends, float64(s.Ends[result]), string(result))
	}
	ran := s.Ran.Seconds()
	p.Add(p.allocated, ran, "worker")
	p.Add(p.allocated, ran*float64(m.shape.CPUs), "cpu")
	p.Add(p.allocated, ran*float64(m.shape.GPUs), "gpu")
}

func (m *Metrics) showAnswers(p page, s *pilot.State) {
	p.Add(p.passed, timestamp(s.At))
	p.Add(p.server, timestamp(s.Server.Answered))
	p.Add(p.backend, timestamp(s.Backend.Answered))
	p.Add(p.failures, float64(s.Server.Failures), "server")
	p.Add(p.failures, float64(s.Backend.Failures), "backend")
	for _, kind := range pilot.Obstacles() {
		there := 0.0
		if s.Obstacles[kind] {
			there = 1
		}
		p.Add(p.obstacle, there, string(kind))
	}
}

// timestamp returns a time as Prometheus has it; 0 for the zero time.
func timestamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
