package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Calls counts the runs of Slurm's commands, with their durations and failures. It is a prometheus.Collector.
type Calls struct {
	now      func() time.Time
	took     *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

// NewCalls returns Calls whose names begin with a prefix, such as cl_bridge_.
func NewCalls(prefix string, now func() time.Time) *Calls {
	return &Calls{
		now: now,
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "slurm_call_duration_seconds", Help: "Duration of the runs of Slurm's commands, by command.", Buckets: prometheus.ExponentialBuckets(0.01, 3, 9),
		}, []string{"command"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "slurm_call_failures_total", Help: "Runs of Slurm's commands that failed, by command. The refusal of a job is no failure.",
		}, []string{"command"}),
	}
}

// Begin counts the begin of a command. It is for sbatch.Client.Watch.
func (c *Calls) Begin(name string) (ended func(answered bool)) {
	began, failed := c.now(), c.failures.WithLabelValues(name)
	return func(answered bool) {
		c.took.WithLabelValues(name).Observe(c.now().Sub(began).Seconds())
		if !answered {
			failed.Inc()
		}
	}
}

// Describe implements prometheus.Collector.
func (c *Calls) Describe(out chan<- *prometheus.Desc) {
	c.took.Describe(out)
	c.failures.Describe(out)
}

// Collect implements prometheus.Collector.
func (c *Calls) Collect(out chan<- prometheus.Metric) {
	c.took.Collect(out)
	c.failures.Collect(out)
}
