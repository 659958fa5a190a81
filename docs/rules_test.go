package docs_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
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

// TestAlertRulesNameMetricsThatExist reads the example of alert rules as Prometheus does.
func TestAlertRulesNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := sampleNames(t)
	alerts := map[string]bool{}
	for _, g := range readRules(t).Groups {
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
	if len(alerts) < 15 {
		t.Errorf("only %d rules", len(alerts))
	}
}

// readRules reads the example of alert rules.
func readRules(t *testing.T) ruleFile {
	t.Helper()
	text, err := os.Open(rulesPath)
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
	return file
}

// annotations returns the texts of a rule.
func (f ruleFile) annotations(t *testing.T, alert string) map[string]string {
	t.Helper()
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			if r.Alert == alert {
				return r.Annotations
			}
		}
	}
	t.Fatalf("there is no rule %s", alert)
	return nil
}

const rulesPath = "../scripts/cl-slurm.rules.yml"
