// Package metrics counts what a bridge does, for Prometheus.
//
// A [Metrics] counts decisions, calls of Slurm's commands, and bytes, as they happen. When it is collected it also reads
// the state of the bridge: bundles by phase, the ages of answers, and obstacles. Nothing of that asks Slurm, the server
// or a disk, so it may be collected while these do not answer.
//
// Names follow Prometheus' conventions: the prefix cl_bridge_, base units, and _total for what only grows. A time is a
// timestamp, of which a rule takes the age. Labels have few values: queues, phases, commands, never a bundle or a user.
package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch/callmetrics"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Metrics has the counts of one bridge. It is a prometheus.Collector, and safe for concurrent use.
type Metrics struct {
	now    func() time.Time
	bridge atomic.Pointer[bridge.Bridge]
	read   atomic.Pointer[func() int64]

	claims, submissions, ended, retries, cached *prometheus.CounterVec
	reloads                                     *prometheus.CounterVec
	delay                                       prometheus.Histogram
	sent                                        prometheus.Counter
	calls                                       calls
	state                                       state
}

// The results of a submission.
const (
	accepted      = "accepted"
	refusedBundle = "refused_bundle"
	refusedQueue  = "refused_queue"
	refusedNow    = "refused_for_now"
	unanswered    = "unanswered"
)

// New returns the metrics of a bridge, which Follow names later.
func New(now func() time.Time) *Metrics {
	return &Metrics{
		now:    now,
		claims: counters("claims_total", "Bundles that the bridge has claimed.", "queue"),
		submissions: counters("submissions_total",
			"Runs of sbatch by their result: accepted, refused_bundle (the request is at fault), refused_queue (the queue's configuration or the site is), refused_for_now, unanswered.",
			"queue", "result"),
		ended:   counters("bundles_ended_total", "Bundles that have ended, by their state (ready, failed, killed) and the cause (succeeded, user, limit, platform).", "queue", "state", "cause"),
		retries: counters("retries_total", "Attempts after the first of a bundle.", "queue"),
		cached:  counters("cache_requests_total", "Images and dependencies that the cache was asked for, by kind and result: hit, or miss if it had to be brought.", "kind", "result"),
		reloads: counters("reloads_total", "Readings of the configuration after SIGHUP: ok or failed.", "result"),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "submission_delay_seconds", Help: "Time from the server's offer of a bundle to its first submission.", Buckets: prometheus.ExponentialBuckets(0.25, 4, 9),
		}),
		sent:  prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "uploaded_bytes_total", Help: "Bytes of results that were sent to the server, compressed."}),
		calls: calls{callmetrics.New(prefix, now)},
		state: newState(),
	}
}

const prefix = "cl_bridge_"

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
}

// Follow lets the metrics show a bridge, and read from now on the bytes that its downloads have read.
func (m *Metrics) Follow(b *bridge.Bridge, read func() int64) {
	for queue := range b.Policy.Queues {
		m.begin(queue)
	}
	for _, kind := range []string{"image", "bundle"} {
		m.cached.WithLabelValues(kind, "hit")
		m.cached.WithLabelValues(kind, "miss")
	}
	m.reloads.WithLabelValues("ok")
	m.reloads.WithLabelValues("failed")
	m.read.Store(&read)
	m.bridge.Store(b)
}

// Begin shows the queues of a bridge that have come into force.
func (m *Metrics) Begin(b *bridge.Bridge) {
	for queue := range b.Queues() {
		m.begin(queue)
	}
}

// begin shows a queue's counts as 0: a rule on their growth then sees the first one.
func (m *Metrics) begin(queue string) {
	m.claims.WithLabelValues(queue)
	m.retries.WithLabelValues(queue)
	for _, result := range []string{accepted, refusedBundle, refusedQueue, refusedNow, unanswered} {
		m.submissions.WithLabelValues(queue, result)
	}
	m.ended.WithLabelValues(queue, string(codalab.StateReady), string(spool.CauseSucceeded))
	m.ended.WithLabelValues(queue, string(codalab.StateKilled), string(spool.CauseUser))
	for _, cause := range []spool.Cause{spool.CauseUser, spool.CauseLimit, spool.CausePlatform} {
		m.ended.WithLabelValues(queue, string(codalab.StateFailed), string(cause))
	}
}

// Count counts a decision. It is for bridge.Config.Count.
func (m *Metrics) Count(before, after *plan.Row, news *plan.News) {
	queue := after.Queue
	if before.Phase == plan.Claiming && news.Claimed != nil && news.Claimed.Failure == "" && news.Claimed.Accepted {
		m.claims.WithLabelValues(queue).Inc()
	}
	if s := news.Submitted; s != nil {
		m.submissions.WithLabelValues(queue, resultOf(s)).Inc()
		if s.Attempt == 1 && before.SbatchCount <= 1 && !before.SubmittedAt.IsZero() {
			m.delay.Observe(before.SubmittedAt.Sub(before.OfferedAt).Seconds())
		}
	}
	if before.Attempt.Number > 0 && after.Attempt.Number > before.Attempt.Number {
		m.retries.WithLabelValues(queue).Inc()
	}
	if v := after.Verdict; v != nil && before.Times.Finalizing.IsZero() && !after.Times.Finalizing.IsZero() {
		m.ended.WithLabelValues(queue, string(v.State()), string(v.Cause)).Inc()
	}
}

// resultOf names the result of a submission.
func resultOf(s *plan.SbatchAnswer) string {
	switch {
	case s.Job != 0:
		return accepted
	case !s.Refused:
		return unanswered
	case s.Retry:
		return refusedNow
	case s.OfQueue || s.OfSite:
		return refusedQueue
	}
	return refusedBundle
}

// Call counts a run of a command of Slurm. It is for sbatch.Client.Watch.
func (m *Metrics) Call(name string) (ended func(answered bool)) { return m.calls.Begin(name) }

// Sent counts bytes of an upload.
func (m *Metrics) Sent(bytes int) { m.sent.Add(float64(bytes)) }

// Got counts a request to the cache. It is for cache.Options.Got.
func (m *Metrics) Got(k cache.Key, hit bool) {
	kind, result := "image", "miss"
	if k.Kind == "bundle" {
		kind = k.Kind
	}
	if hit {
		result = "hit"
	}
	m.cached.WithLabelValues(kind, result).Inc()
}

// Reloaded counts a reading of the configuration after SIGHUP.
func (m *Metrics) Reloaded(err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.reloads.WithLabelValues(result).Inc()
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.counted() {
		c.Describe(out)
	}
	m.state.describe(out)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.counted() {
		c.Collect(out)
	}
	var read int64
	if of := m.read.Load(); of != nil {
		read = (*of)()
	}
	m.state.collect(out, m.now(), m.bridge.Load(), read)
}

func (m *Metrics) counted() []prometheus.Collector {
	return []prometheus.Collector{m.claims, m.submissions, m.ended, m.retries, m.cached, m.reloads, m.delay, m.sent, m.calls}
}
