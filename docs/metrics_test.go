package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	bridgemetrics "github.com/cl-slurm/cl-slurm/bridge/metrics"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/metrics"
	"github.com/cl-slurm/cl-slurm/sbatch/callmetrics"
)

// metric is one of a program's, as the tables of docs/operators/monitoring.md have it.
type metric struct{ name, labels, help string }

var described = regexp.MustCompile(`fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)", unit: "[^"]*", constLabels: \{[^}]*\}, variableLabels: \{([^}]*)\}`)

// allMetrics returns the metrics of the bridge and of the worker manager, without those of Go and the process.
func allMetrics(t *testing.T) []metric {
	t.Helper()
	var all []metric
	add := func(name, help string, labels ...string) {
		text := "–"
		if len(labels) > 0 {
			text = "`" + strings.Join(labels, "`, `") + "`"
		}
		all = append(all, metric{name, text, help})
	}
	descs := make(chan *prometheus.Desc, 100)
	bridgemetrics.New(time.Now).Describe(descs)
	close(descs)
	for d := range descs {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("cannot read %s", d)
		}
		add(m[1], m[2], strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' })...)
	}
	calls := callmetrics.New(metrics.Prefix, time.Now)
	for _, d := range append(metrics.Descs(), calls.Durations(), calls.Failures()) {
		add(d.Name, d.Help, d.Labels...)
	}
	for _, prefix := range []string{"cl_bridge_", metrics.Prefix} { // of the page
		add(prefix+"build_info", "1, with the version of the build and of Go.", "version", "goversion")
	}
	return all
}

// sampleNames returns the names of the metrics' samples.
func sampleNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, m := range allMetrics(t) {
		names = append(names, m.name)
		if strings.HasSuffix(m.name, "_seconds") {
			names = append(names, m.name+"_sum", m.name+"_count", m.name+"_bucket") // of a histogram
		}
	}
	return names
}

var metricName = regexp.MustCompile(`\b(?:cl_bridge|cl_worker_manager)_[a-z_]+\b`)

// Each metric has its row, and a document names none that does not exist.
func TestDocumentsNameTheMetricsThatExist(t *testing.T) {
	t.Parallel()
	texts := documents(t)
	page := texts["docs/operators/monitoring.md"]
	for _, m := range allMetrics(t) {
		if line := "| `" + m.name + "` | " + m.labels + " | " + m.help + " |\n"; !strings.Contains(page, line) {
			t.Errorf("docs/operators/monitoring.md lacks the line\n%s", line)
		}
	}
	known := sampleNames(t)
	for path, text := range texts {
		for _, name := range metricName.FindAllString(text, -1) {
			if !slices.Contains(known, name) {
				t.Errorf("%s: there is no metric %s", path, name)
			}
		}
	}
}

// The page names each value of a label that is one of a few.
func TestPageOfMetricsNamesTheValuesOfTheirLabels(t *testing.T) {
	t.Parallel()
	page := documents(t)["docs/operators/monitoring.md"]
	var values []string
	for _, v := range pilot.WorkerStates() {
		values = append(values, string(v))
	}
	for _, v := range pilot.Obstacles() {
		values = append(values, string(v))
	}
	for _, value := range values {
		if !strings.Contains(page, "`"+value+"`") {
			t.Errorf("docs/operators/monitoring.md has no %s", value)
		}
	}
	help := map[string]string{}
	for _, m := range allMetrics(t) {
		help[m.name] = m.help
	}
	for _, v := range pilot.Lacks() {
		if !strings.Contains(help[metrics.Prefix+"bundles_left_out"], string(v)) {
			t.Errorf("the help of bundles_left_out has no %s", v)
		}
	}
	for _, v := range pilot.StartResults() {
		if !strings.Contains(help[metrics.Prefix+"starts_total"], string(v)) {
			t.Errorf("the help of starts_total has no %s", v)
		}
	}
	for _, v := range pilot.EndResults() {
		if !strings.Contains(help[metrics.Prefix+"workers_ended_total"], string(v)) {
			t.Errorf("the help of workers_ended_total has no %s", v)
		}
	}
}
