package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cl-slurm/cl-slurm/internal/exposition"
	"github.com/cl-slurm/cl-slurm/sbatch/callmetrics"
)

// calls shows the runs of Slurm's commands. It is a prometheus.Collector.
type calls struct{ *callmetrics.Calls }

func promDesc(d exposition.Desc) *prometheus.Desc {
	return prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
}

// Describe implements prometheus.Collector.
func (c calls) Describe(out chan<- *prometheus.Desc) {
	out <- promDesc(c.Durations())
	out <- promDesc(c.Failures())
}

// Collect implements prometheus.Collector.
func (c calls) Collect(out chan<- prometheus.Metric) {
	took, failures := promDesc(c.Durations()), promDesc(c.Failures())
	for _, one := range c.Commands() {
		buckets := map[float64]uint64{}
		for i, bound := range one.Took.Bounds {
			buckets[bound] = one.Took.Below[i]
		}
		out <- prometheus.MustNewConstHistogram(took, one.Took.Below[len(one.Took.Bounds)], one.Took.Sum, buckets, one.Name)
		out <- prometheus.MustNewConstMetric(failures, prometheus.CounterValue, float64(one.Failures), one.Name)
	}
}
