package docs_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/cl-slurm/cl-slurm/bridge/metrics"
)

// ruleFile is a file of Prometheus' rules, as far as ours has them.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

var (
	metricName = regexp.MustCompile(`\b(?:cl_bridge|cl_worker_manager|codalab)_[a-z_]+\b`)
	descName   = regexp.MustCompile(`fqName: "([^"]*)"`)
)

// TestAlertRulesNameMetricsThatExist reads the example of alert rules as Prometheus does.
func TestAlertRulesNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.Open("../scripts/cl-slurm.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	var file ruleFile
	in := yaml.NewDecoder(text)
	in.KnownFields(true)
	if err := in.Decode(&file); err != nil {
		t.Fatal(err)
	}
	known := bridgeMetrics()
	alerts := map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if alerts[r.Alert] || r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["action"] == "" {
				t.Errorf("rule %q lacks a name of its own, a severity, a summary or an action", r.Alert)
			}
			alerts[r.Alert] = true
			if _, err := time.ParseDuration(r.For); r.For != "" && err != nil {
				t.Errorf("%s: for %s", r.Alert, r.For)
			}
			names := metricName.FindAllString(r.Expr, -1)
			if len(names) == 0 {
				t.Errorf("%s names no metric: %s", r.Alert, r.Expr)
			}
			for _, name := range names {
				if !slices.Contains(known, name) {
					t.Errorf("%s: there is no metric %s", r.Alert, name)
				}
			}
		}
	}
	if len(alerts) < 5 {
		t.Errorf("only %d rules", len(alerts))
	}
}

// bridgeMetrics returns the names of a bridge's samples.
func bridgeMetrics() []string {
	descs := make(chan *prometheus.Desc, 100)
	metrics.New(time.Now).Describe(descs)
	close(descs)
	var names []string
	for d := range descs {
		name := descName.FindStringSubmatch(d.String())[1]
		names = append(names, name)
		if strings.HasSuffix(name, "_seconds") {
			names = append(names, name+"_sum", name+"_count", name+"_bucket") // of a histogram
		}
	}
	return names
}
