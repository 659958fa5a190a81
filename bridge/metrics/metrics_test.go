package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

var epoch = time.Unix(1_800_000_000, 0)

func clock() time.Time { return epoch }

// wantSamples compares metrics of some names with their text.
func wantSamples(t *testing.T, m *Metrics, names, want string) {
	t.Helper()
	if err := testutil.CollectAndCompare(m, strings.NewReader(want), strings.Fields(names)...); err != nil {
		t.Error(err)
	}
}

func TestEachSubmissionHasOneResult(t *testing.T) {
	t.Parallel()
	m := New(clock)
	before := plan.Row{Queue: "cpu", Phase: plan.Submitting}
	for _, s := range []plan.SbatchAnswer{
		{Job: 7}, {Job: 8}, {}, {Refused: true}, {Refused: true, Retry: true}, {Refused: true, OfQueue: true}, {Refused: true, OfSite: true},
	} {
		m.Count(&before, &before, &plan.News{Submitted: &s})
	}
	m.Count(&before, &before, &plan.News{})
	wantSamples(t, m, "cl_bridge_submissions_total", `
# HELP cl_bridge_submissions_total Runs of sbatch by their result: accepted, refused_bundle (the request is at fault), refused_queue (the queue's configuration or the site is), refused_for_now, unanswered.
# TYPE cl_bridge_submissions_total counter
cl_bridge_submissions_total{queue="cpu",result="accepted"} 2
cl_bridge_submissions_total{queue="cpu",result="refused_bundle"} 1
cl_bridge_submissions_total{queue="cpu",result="refused_for_now"} 1
cl_bridge_submissions_total{queue="cpu",result="refused_queue"} 2
cl_bridge_submissions_total{queue="cpu",result="unanswered"} 1
`)
}

// A verdict is reported more than once, and counted once.
func TestEachEndIsCountedOnceByItsState(t *testing.T) {
	t.Parallel()
	m := New(clock)
	exit := 3
	for _, v := range []plan.Verdict{
		{Cause: spool.CauseSucceeded},
		{Cause: spool.CauseUser, ExitCode: &exit},
		{Cause: spool.CauseUser, Failure: codalab.KillRequested},
		{Cause: spool.CausePlatform, Failure: "node n1 failed"},
	} {
		collecting := plan.Row{Queue: "cpu", Phase: plan.Collecting, Verdict: &v}
		finalizing := collecting
		finalizing.Phase, finalizing.Times.Finalizing = plan.Finalizing, epoch
		m.Count(&collecting, &finalizing, &plan.News{})
		m.Count(&finalizing, &finalizing, &plan.News{})
	}
	wantSamples(t, m, "cl_bridge_bundles_ended_total", `
# HELP cl_bridge_bundles_ended_total Bundles that have ended, by their state (ready, failed, killed) and the cause (succeeded, user, limit, platform).
# TYPE cl_bridge_bundles_ended_total counter
cl_bridge_bundles_ended_total{cause="platform",queue="cpu",state="failed"} 1
cl_bridge_bundles_ended_total{cause="succeeded",queue="cpu",state="ready"} 1
cl_bridge_bundles_ended_total{cause="user",queue="cpu",state="failed"} 1
cl_bridge_bundles_ended_total{cause="user",queue="cpu",state="killed"} 1
`)
}

func TestCallsHitsAndBytesAreCounted(t *testing.T) {
	t.Parallel()
	m := New(clock)
	m.Call("squeue")(true)
	m.Call("squeue")(false)
	m.Got(cache.Key{Kind: "bundle"}, true)
	m.Got(cache.Key{Kind: "sif"}, false)
	m.Sent(7)
	m.Sent(5)
	wantSamples(t, m, "cl_bridge_slurm_call_failures_total", `
# HELP cl_bridge_slurm_call_failures_total Runs of Slurm's commands that failed, by command. The refusal of a job is no failure.
# TYPE cl_bridge_slurm_call_failures_total counter
cl_bridge_slurm_call_failures_total{command="squeue"} 1
`)
	for metric, want := range map[prometheus.Collector]float64{
		m.sent: 12,
		m.cached.WithLabelValues("bundle", "hit"): 1, m.cached.WithLabelValues("image", "miss"): 1, m.cached.WithLabelValues("image", "hit"): 0,
	} {
		if got := testutil.ToFloat64(metric); got != want {
			t.Errorf("%g, want %g", got, want)
		}
	}
}

// A scrape at the start of a bridge finds one that has not opened its ledger.
func TestBridgeThatHasNotBegunIsShown(t *testing.T) {
	t.Parallel()
	m := New(clock)
	m.Follow(&bridge.Bridge{Config: bridge.Config{Policy: plan.Policy{Queues: map[string]plan.Queue{"cpu": {Name: "cpu"}}}}}, func() int64 { return 0 })
	wantSamples(t, m, "cl_bridge_collected_timestamp_seconds cl_bridge_slurm_observed_timestamp_seconds", `
# HELP cl_bridge_collected_timestamp_seconds When these numbers were collected. An old time in a file shows that no bridge runs.
# TYPE cl_bridge_collected_timestamp_seconds gauge
cl_bridge_collected_timestamp_seconds 1.8e+09
# HELP cl_bridge_slurm_observed_timestamp_seconds When Slurm last gave a complete list of jobs; 0 if it has not since the start.
# TYPE cl_bridge_slurm_observed_timestamp_seconds gauge
cl_bridge_slurm_observed_timestamp_seconds 0
`)
}

func TestEachKindOfObstacleHasItsFlag(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]bridge.Condition{
		"slurm_unanswered": {Observed: epoch, Slurm: "x"}, "slurm_not_seen": {Open: true}, "slurm_settings": {SettingsFailure: "x"},
		"queue_held": {Held: map[string]string{"cpu": "x"}}, "node_avoided": {Nodes: map[string]string{"n1": "x"}},
		"server_refuses": {Server: map[string]string{"cpu": "x"}}, "server_late": {LateQueues: []string{"cpu"}},
		"disk_low": {DiskLow: "x"}, "configuration_refused": {Refused: "x"},
	} {
		for other, there := range Obstacles(c) {
			if there != (other == kind) {
				t.Errorf("a bridge with %s: %s is %t", kind, other, there)
			}
		}
	}
	if n := len(Obstacles(bridge.Condition{})); n != 9 {
		t.Errorf("%d kinds, and 9 are tested", n)
	}
}
