package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// alarm is a state in which a rule fires, and one in which it does not. Series are those of promtool: a begin, a step, and a
// number of steps of two minutes.
type alarm struct {
	alert string
	at    string            // when it fires
	when  map[string]string // the series with which it fires
	quiet map[string]string // those with which it does not
	// labels and value are those of the alert.
	labels map[string]string
	value  string
}

// Values of series in promtool's form. A time in Prometheus' tests begins at 0, so that a timestamp that grows by 120
// is that of now.
const (
	never = "0x800"
	now   = "0+120x800"
	one   = "1x800"
	grows = "0+2x800"
)

// alarms has each rule of the example.
func alarms() []alarm {
	all := append(bridgeAlarms(), managerAlarms()...)
	for i := range all {
		if all[i].at == "" {
			all[i].at = "130m"
		}
	}
	return all
}

func bridgeAlarms() []alarm {
	bridge := map[string]string{"instance": "h", "bridge": "b"}
	of := func(more ...string) map[string]string { return with(bridge, more...) }
	const in, queue = `{instance="h",bridge="b"}`, `{instance="h",bridge="b",queue="cpu"}`
	const full, disk = `cl_bridge_obstacle{instance="h",bridge="b",kind="disk_low"}`, `cl_bridge_slurm_call_duration_seconds`
	const failures = `cl_bridge_slurm_call_failures_total{instance="h",bridge="b",command="squeue"}`
	const count, sum = disk + `_count{instance="h",bridge="b",command="squeue"}`, disk + `_sum{instance="h",bridge="b",command="squeue"}`
	// A bridge that is started again and again asks sinfo once each time: the count is 1 again, and the sum another.
	const once, other = disk + `_count{instance="h",bridge="b",command="sinfo"}`, disk + `_sum{instance="h",bridge="b",command="sinfo"}`
	const refused = `cl_bridge_submissions_total{instance="h",bridge="b",queue="cpu",result="refused_queue"}`
	const platform = `cl_bridge_bundles_ended_total{instance="h",bridge="b",queue="cpu",state="failed",cause="platform"}`
	const ready = `cl_bridge_bundles_ended_total{instance="h",bridge="b",queue="cpu",state="ready",cause="succeeded"}`
	const reloads = `cl_bridge_reloads_total{instance="h",bridge="b",result="failed"}`
	return []alarm{
		{alert: "ClBridgeDown", when: series("cl_bridge_collected_timestamp_seconds"+in, never), quiet: series("cl_bridge_collected_timestamp_seconds"+in, now), labels: of()},
		{alert: "ClBridgeObstacle", when: series(full, one), quiet: series(full, never), labels: of("kind", "disk_low")},
		{alert: "ClBridgeCheckInOld", when: series("cl_bridge_check_in_answered_timestamp_seconds"+queue, never), quiet: series("cl_bridge_check_in_answered_timestamp_seconds"+queue, now), labels: of("queue", "cpu")},
		{alert: "ClBridgeSlurmFails", when: series(failures, "0+4x800"), quiet: series(failures, grows), labels: of("command", "squeue")},
		{alert: "ClBridgeSlurmSlow", when: series(count, grows, sum, "0+22x800"), quiet: series(count, grows, sum, "0+18x800", once, one, other, grows), labels: of("command", "squeue")},
		{alert: "ClBridgeQueueRefused", when: series(refused, grows), quiet: series(refused, one), labels: of("queue", "cpu")},
		{alert: "ClBridgePlatformFailures", when: series(platform, grows, ready, grows), quiet: series(platform, grows, ready, "0+20x800"), labels: of("queue", "cpu")},
		{alert: "ClBridgeBundleWaitsLong", at: "1500m", when: series("cl_bridge_oldest_waiting_bundle_timestamp_seconds"+queue, never), quiet: series("cl_bridge_oldest_waiting_bundle_timestamp_seconds"+queue, now), labels: of("queue", "cpu")},
		{alert: "ClBridgeConfigurationRefused", when: series(reloads, grows), quiet: series(reloads, one), labels: of("result", "failed")},
	}
}

func managerAlarms() []alarm {
	manager := map[string]string{"instance": "h", "manager": "m"}
	of := func(more ...string) map[string]string { return with(manager, more...) }
	const in = `{instance="h",backend="slurm-batch",manager="m"}`
	named := func(name, labels string) string {
		return `cl_worker_manager_` + name + `{instance="h",backend="slurm-batch",manager="m",` + labels + `}`
	}
	old := func(alert, name, at string) alarm {
		return alarm{alert: alert, at: at, when: series("cl_worker_manager_"+name+in, never), quiet: series("cl_worker_manager_"+name+in, now), labels: of("backend", "slurm-batch")}
	}
	ends, idle := named("workers_ended_total", `result="stuck"`), named("workers", `state="idle"`)
	return []alarm{
		old("ClWorkerManagerDown", "collected_timestamp_seconds", ""),
		old("ClWorkerManagerHangs", "pass_ended_timestamp_seconds", ""),
		old("ClWorkerManagerServerSilent", "server_answered_timestamp_seconds", ""),
		old("ClWorkerManagerBackendSilent", "backend_answered_timestamp_seconds", ""),
		old("ClWorkerManagerBundleWaitsLong", "oldest_waiting_bundle_timestamp_seconds", "1500m"),
		{alert: "ClWorkerManagerObstacle", when: series(named("obstacle", `kind="starts_refused"`), one), quiet: series(named("obstacle", `kind="server_unanswered"`), one), labels: of("kind", "starts_refused")},
		{alert: "ClWorkerManagerFull", when: series(named("obstacle", `kind="max_workers"`), one), quiet: series(named("obstacle", `kind="max_workers"`), never), labels: of()},
		{alert: "ClWorkerManagerWorkersFail", when: series(ends, grows), quiet: series(named("workers_ended_total", `result="worked"`), grows), labels: of()},
		{alert: "ClWorkerManagerSilentWorkers", when: series(named("workers", `state="silent"`), one), quiet: series(named("workers", `state="busy"`), one), labels: of(), value: "1"},
		{alert: "ClWorkerManagerIdleWorkers", when: series(idle, "2x800", "cl_worker_manager_workers_min"+in, one), quiet: series(idle, one, "cl_worker_manager_workers_min"+in, one), labels: of("backend", "slurm-batch"), value: "2"},
	}
}

// series are pairs of a series and its values.
func series(pairs ...string) map[string]string { return with(nil, pairs...) }

// with returns a map with further pairs of a key and its value.
func with(some map[string]string, pairs ...string) map[string]string {
	all := map[string]string{}
	for key, value := range some {
		all[key] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

// TestEachAlertRuleFiresInTime asks Prometheus' own promtool.
func TestEachAlertRuleFiresInTime(t *testing.T) {
	t.Parallel()
	promtool := testenv.Promtool(t)
	rules, err := filepath.Abs(rulesPath)
	testenv.Must(t, err)
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", rules).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	byAlert, file := map[string]alarm{}, readRules(t)
	for _, a := range alarms() {
		byAlert[a.alert] = a
	}
	loud, quiet := promTest{series: map[string]string{}}, promTest{series: map[string]string{}}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			a, ok := byAlert[r.Alert]
			if !ok {
				t.Errorf("%s is not tested", r.Alert)
				continue
			}
			annotations := map[string]string{}
			for name, text := range r.Annotations {
				annotations[name] = a.render(t, text)
			}
			fires := []any{map[string]any{"exp_labels": with(a.labels, "severity", r.Labels["severity"]), "exp_annotations": annotations}}
			loud.add(t, a, a.when, fires)
			quiet.add(t, a, a.quiet, []any{})
		}
	}
	runPromTests(t, promtool, rules, loud.document(), quiet.document())
}

// TestAKilledProgramIsDownUntilItIsBack: its address no longer answers, so its metrics are stale after ten minutes of the
// test, and there again after forty.
func TestAKilledProgramIsDownUntilItIsBack(t *testing.T) {
	t.Parallel()
	promtool := testenv.Promtool(t)
	rules, err := filepath.Abs(rulesPath)
	testenv.Must(t, err)
	for alert, metric := range map[string]string{
		"ClBridgeDown":        `cl_bridge_collected_timestamp_seconds{instance="h",bridge="b"}`,
		"ClWorkerManagerDown": `cl_worker_manager_collected_timestamp_seconds{instance="h",backend="slurm-batch",manager="m"}`,
	} {
		fires := []any{map[string]any{"exp_labels": map[string]string{"severity": "page"}, "exp_annotations": readRules(t).annotations(t, alert)}}
		var alerts []any
		for at, expected := range map[string][]any{"8m": {}, "30m": fires, "50m": {}} {
			alerts = append(alerts, map[string]any{"eval_time": at, "alertname": alert, "exp_alerts": expected})
		}
		runPromTests(t, promtool, rules, map[string]any{
			"interval":        "2m",
			"input_series":    []any{map[string]string{"series": metric, "values": "0+120x4 stale _x14 2400+120x10"}},
			"alert_rule_test": alerts,
		})
	}
}

// runPromTests runs tests of the rules with promtool.
func runPromTests(t *testing.T, promtool, rules string, tests ...any) {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{rules}, "evaluation_interval": "2m", "tests": tests})
	testenv.Must(t, err)
	path := filepath.Join(t.TempDir(), "rules.test.yml")
	testenv.Must(t, os.WriteFile(path, text, 0o600))
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// render fills in a text of a rule as Prometheus does.
func (a alarm) render(t *testing.T, text string) string {
	t.Helper()
	made, err := template.New("").Parse("{{$labels := .labels}}{{$value := .value}}" + text)
	testenv.Must(t, err)
	var out strings.Builder
	testenv.Must(t, made.Execute(&out, map[string]any{"labels": a.labels, "value": a.value}))
	return out.String()
}

// promTest is a test of promtool: series, and the alerts that are expected.
type promTest struct {
	series map[string]string
	alerts []any
}

// add adds a state and the alerts that it causes.
func (p *promTest) add(t *testing.T, a alarm, when map[string]string, fires []any) {
	t.Helper()
	for name, values := range when {
		if other, known := p.series[name]; known && other != values {
			t.Fatalf("%s: %s and %s", name, other, values)
		}
		p.series[name] = values
	}
	p.alerts = append(p.alerts, map[string]any{"eval_time": a.at, "alertname": a.alert, "exp_alerts": fires})
}

func (p *promTest) document() map[string]any {
	var input []any
	for name, values := range p.series {
		input = append(input, map[string]string{"series": name, "values": values})
	}
	return map[string]any{"interval": "2m", "input_series": input, "alert_rule_test": p.alerts}
}
