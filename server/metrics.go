package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/hub"
)

// metrics has the counts of /metrics.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	signIns  *prometheus.CounterVec
	passes   prometheus.Histogram
	staged   prometheus.Gauge
	// auditLost counts the audit lines that the audit file lacks.
	auditLost prometheus.Counter
}

func newMetrics(h *hub.Hub, now func() time.Time) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "codalab_requests_total", Help: "Requests that were answered, by route and status.",
		}, []string{"route", "status"}),
		signIns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "codalab_sign_ins_total", Help: "Sign-ins with a password: ok, refused, or put off after too many refused ones.",
		}, []string{"outcome"}),
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "codalab_match_seconds", Help: "Time to match staged runs with workers.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}),
		staged: prometheus.NewGauge(prometheus.GaugeOpts{Name: "codalab_runs_staged", Help: "Runs that wait for a worker."}),
		auditLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "codalab_audit_lines_lost_total", Help: "Audit lines that could not be written to the audit file.",
		}),
	}
	gauge := func(name, help string, value func(hub.Counts) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value(h.Counts(now()))) })
	}
	m.registry.MustRegister(
		m.requests, m.signIns, m.passes, m.staged, m.auditLost, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("codalab_workers", "Workers that have checked in lately.", func(c hub.Counts) int { return c.Workers }),
		gauge("codalab_check_ins_held", "Check-ins that wait for a message.", func(c hub.Counts) int { return c.CheckIns }),
		gauge("codalab_runs_on_workers", "Runs that workers have.", func(c hub.Counts) int { return c.Runs }),
	)
	return m
}

// request counts a request.
func (m *metrics) request(route string, status int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// MetricsHandler serves what the server counts, in Prometheus' text format. It asks for no sign-in,
// so its address should be one that only the monitoring reaches.
func (s *Server) MetricsHandler() http.Handler {
	return promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{})
}

// health answers whether the server serves: 200 and "ok", or 503 if its database does not answer.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if err := s.Store.Ping(r.Context()); err != nil {
		failures.Log(r.Context(), s.Log, "check health", err)
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n")) // to a client that may have gone
}
