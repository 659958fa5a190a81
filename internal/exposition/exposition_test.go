package exposition_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cl-slurm/cl-slurm/internal/exposition"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// odd has each character that the format escapes, and one that it does not.
const odd = "a\\b\"c\nd é"

// metrics returns some metrics as a text, and as Prometheus' own library writes them.
func metrics(t *testing.T) (ours, theirs string) {
	t.Helper()
	text := exposition.Text{Labels: [][2]string{{"manager", odd}}}
	r, file := prometheus.NewRegistry(), filepath.Join(t.TempDir(), "m.prom")
	registry := prometheus.WrapRegistererWith(prometheus.Labels{"manager": odd}, r)

	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x_runs_total", Help: odd}, []string{"kind", "state"})
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "a_bytes", Help: "Bytes."})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "took_seconds", Help: "Time.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 3)}, []string{"command"})
	registry.MustRegister(counter, gauge, took)

	runs := exposition.Desc{Name: "x_runs_total", Help: odd, Kind: exposition.Counter, Labels: []string{"kind", "state"}}
	for _, kind := range []string{"", odd, "z"} {
		counter.WithLabelValues(kind, "s").Add(1e21)
		text.Add(runs, 1e21, kind, "s")
	}
	gauge.Set(1.5)
	text.Add(exposition.Desc{Name: "a_bytes", Help: "Bytes.", Kind: exposition.Gauge}, 1.5)
	h := exposition.NewHistogram(0.01, 4, 3)
	for _, value := range []float64{0, 0.01, 0.0100001, 0.16, 7} {
		took.WithLabelValues("squeue").Observe(value)
		h.Observe(value)
	}
	text.AddHistogram(exposition.HistogramDesc("took_seconds", "Time.", "command"), h.Counts(), "squeue")

	var out strings.Builder
	_, err := text.WriteTo(&out)
	testenv.Must(t, err)
	testenv.Must(t, prometheus.WriteToTextfile(file, r))
	data, err := os.ReadFile(file)
	testenv.Must(t, err)
	return out.String(), string(data)
}

func TestTextIsThatOfPrometheusOwnLibrary(t *testing.T) {
	t.Parallel()
	ours, theirs := metrics(t)
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("(-theirs +ours):\n%s", diff)
	}
}

func TestPrometheusTakesTheText(t *testing.T) {
	t.Parallel()
	promtool := testenv.Promtool(t)
	ours, _ := metrics(t)
	check := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	check.Stdin = strings.NewReader(ours)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
