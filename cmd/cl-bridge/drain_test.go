package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/drain"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// No bridge runs here; TestDrainedBridgeFinishesWhatItHas has one.
func TestOrderToDrainIsShownWithItsOperatorUntilResume(t *testing.T) {
	t.Parallel()
	r, layout := littered(t)
	say := func(want string, args ...string) {
		t.Helper()
		out, err := command(t, append(args, "--config", r.config)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("cl-bridge %s: %v, no %q in\n%s", strings.Join(args, " "), err, want, out)
		}
	}
	shows := func(orders int, wants ...string) {
		t.Helper()
		out, err := statusOf(t, "--config", r.config)
		if err != nil || strings.Count(out, " is drained by ") != orders {
			t.Errorf("%v, want %d orders in\n%s", err, orders, out)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	say("Queue cpu is drained: no new bundle is claimed until \"cl-bridge resume cpu\".\nNo bridge runs, or it has only begun to start; it follows this from its start.\n", "drain", "cpu")
	say("The bridge is drained: ", "drain", "--reason", "new disks")
	shows(2, "! The bridge is drained by ", "@"+host+" since ", ": new disks. No new bundle is claimed until \"cl-bridge resume\"; those that it has go on.\n", "! Queue cpu is drained by ")
	say("The bridge takes new bundles again.\nNo bridge runs, or it has only begun to start; it follows this from its start.\nQueue cpu stays drained by ", "resume")
	shows(1, "! Queue cpu is drained by ")
	say("The bridge was not drained.\nQueue cpu stays drained by ", "resume")
	say("Queue cpu takes new bundles again.\n", "resume", "cpu")
	say("Queue cpu was not drained.\n", "resume", "cpu")
	shows(0)

	out, err := command(t, "drain", "cpu", "--reason", "r", "--json", "--config", r.config)
	var got ordered
	if err == nil {
		err = json.Unmarshal([]byte(out), &got)
	}
	if err != nil || len(got.Given) != 1 || got.Given[0].Queue != "cpu" || got.Given[0].Reason != "r" || got.Given[0].By == "" || got.Running {
		t.Errorf("in JSON: %v, %s", err, out)
	}

	// A queue that was taken out of the configuration since can be resumed.
	if err := drain.In(layout).Give(drain.Order{Queue: "old"}); err != nil {
		t.Fatal(err)
	}
	say("Queue old takes new bundles again.\n", "resume", "old")
	for args, want := range map[string]string{
		"drain nosuch":  `there is no queue "nosuch": the configuration has cpu`,
		"drain cpu gpu": "accepts at most 1 arg",
		"drain --reason " + strings.Repeat("x", 201): "--reason has 201 bytes, and may have 200",
	} {
		_, err := command(t, append(strings.Fields(args), "--config", r.config)...)
		if code := program.Code(t.Context(), err); code != program.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: code %d, %v; want %q", args, code, err, want)
		}
	}
}

func TestDrainCompletesQueues(t *testing.T) {
	t.Parallel()
	r, _ := littered(t)
	for _, verb := range []string{"drain", "resume"} {
		out, err := command(t, "__completeNoDesc", verb, "--config", r.config, "")
		if err != nil || !strings.HasPrefix(out, "cpu\n") {
			t.Errorf("%s: %v, %q", verb, err, out)
		}
	}
}
