package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what /metrics tells.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	signIns  *prometheus.CounterVec
	passes   prometheus.Histogram
}

func newMetrics(h *hub, now func() time.Time) *metrics {
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
	}
	gauge := func(name, help string, value func(hubCounts) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value(h.counts(now()))) })
	}
	m.registry.MustRegister(
		m.requests, m.signIns, m.passes, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("codalab_workers", "Workers that have checked in lately.", func(c hubCounts) int { return c.workers }),
		gauge("codalab_check_ins_held", "Check-ins that wait for a message.", func(c hubCounts) int { return c.held }),
		gauge("codalab_runs_on_workers", "Runs that workers have.", func(c hubCounts) int { return c.runs }),
		gauge("codalab_runs_staged", "Runs that wait for a worker.", func(c hubCounts) int { return c.staged }),
	)
	return m
}

// request counts a request.
func (m *metrics) request(route string, status int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// hubCounts is how many of each thing there are.
type hubCounts struct{ workers, held, runs, staged int }

func (h *hub) counts(now time.Time) hubCounts {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := hubCounts{runs: len(h.holders), staged: h.staged}
	for _, w := range h.workers {
		if w.known && now.Sub(w.seen) <= h.timeout {
			c.workers++
		}
		if w.poll != nil {
			c.held++
		}
	}
	return c
}

// setStaged records how many runs wait for a worker.
func (h *hub) setStaged(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.staged = n
}

// MetricsHandler serves what the server counts, in Prometheus' text format. It asks for no sign-in,
// so its address should be one that only the monitoring reaches.
func (s *Server) MetricsHandler() http.Handler {
	return promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{})
}

// health answers whether the server serves: 200 and "ok", or 503 if its database does not answer.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if err := s.Store.Ping(r.Context()); err != nil {
		s.logError(r.Context(), "check health", err)
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n")) // to a client that may have gone
}
