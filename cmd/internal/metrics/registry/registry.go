// Package registry makes a page of the metrics of Prometheus' own library.
//
// The address serves the program's own counts and those of the Go runtime and the process. The file has only the former:
// node_exporter has counts of its own with the latter's names.
package registry

import (
	"log/slog"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/metrics"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// NewPage returns a page with the counts of collectors and the build's version. prefix begins the names, such as cl_bridge_.
// All of them have these labels, as those of metrics.NewPage.
func NewPage(prefix string, labels prometheus.Labels, log *slog.Logger, of ...prometheus.Collector) *metrics.Page {
	own, process := prometheus.NewRegistry(), prometheus.NewRegistry()
	labelled := prometheus.WrapRegistererWith(labels, own)
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "build_info", Help: metrics.BuildHelp,
		ConstLabels: prometheus.Labels{"version": program.Version(), "goversion": runtime.Version()},
	})
	build.Set(1)
	labelled.MustRegister(build)
	labelled.MustRegister(of...)
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &metrics.Page{
		Log:     log,
		Handler: promhttp.HandlerFor(prometheus.Gatherers{own, process}, promhttp.HandlerOpts{}),
		Write:   func(path string) error { return prometheus.WriteToTextfile(path, own) },
	}
}
