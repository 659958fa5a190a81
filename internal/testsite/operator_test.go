package testsite_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// An operator's day: drain, restart the bridge as an upgrade does, look at what runs and at what waits, resume.
func TestDrainedBridgeFinishesWhatItHas(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{Config: often("")})
	runs := run(t, s, "cpu", "while [ ! -e go ]; do sleep 0.2; done; echo done", "--name", "runs")
	job := begun(t, s, runs)
	says := func(want string, args ...string) {
		t.Helper()
		if out := bridge(t, s, args...); !strings.Contains(out, want) {
			t.Errorf("cl-bridge %s: no %q in\n%s", strings.Join(args, " "), want, out)
		}
	}
	says("The bridge follows. It has 1 bundle to finish.", "drain", "--reason", "new disks")
	waits := run(t, s, "cpu", "echo done", "--name", "waits")
	drained := func() {
		t.Helper()
		status := ""
		testenv.Await(t, "the waiting bundle shows the order", func() bool {
			status = field(t, s, waits, "staged_status")
			return strings.Contains(status, "takes no new bundles now: its operators have drained it since ") && strings.Contains(status, "(new disks)")
		}, &status)
	}
	drained()
	statusCode(t, s, 1, "\n! The bridge is drained by ")
	testenv.Must(t, s.StopBridge())
	statusCode(t, s, 3, " does not run.\n")
	testenv.Must(t, s.StartBridge(t.Context()))
	drained()

	for _, word := range []string{runs, runs[:20], "runs", job} {
		says(runs+" (runs) is running\n", "explain", word)
	}
	says("It is job "+job+".\nNothing was submitted.", "plan", runs)
	says("Slurm would start it at ", "plan", waits)
	says("Slurm would start it at ", "plan", "--request-cpus", "2", "--request-queue", "cpu")

	testenv.Must(t, s.GoOn(t.Context(), runs))
	cl(t, s, "wait", runs)
	logs := bridge(t, s, "logs", "runs")
	for _, want := range []string{"--- started\n", "--- status.json\n", "--- exit.json\n", "--- slurm.out", "\n=== The bridge's log: journalctl --user", runs} {
		if !strings.Contains(logs, want) {
			t.Errorf("no %q in\n%s", want, logs)
		}
	}
	if state := field(t, s, waits, "state"); state != "staged" {
		t.Errorf("the bundle that came after the order is %s", state)
	}
	says("The bridge takes new bundles again.\nThe bridge follows.", "resume")
	cl(t, s, "wait", waits)
	statusCode(t, s, 0, "\nNothing holds it up.\n")
}

// statusCode waits until cl-bridge status ends with an exit code and shows a text.
func statusCode(t *testing.T, s *testsite.Site, want int, text string) {
	t.Helper()
	code, said := 0, ""
	testenv.Await(t, fmt.Sprintf("cl-bridge status ends with %d, and shows %q", want, text), func() bool {
		var err error
		code = 0
		said, err = s.Run(t.Context(), program, "status", "--config", s.BridgeConfig())
		if failed, ok := errors.AsType[*command.Error](err); ok {
			code = failed.ExitCode
		}
		return code == want && strings.Contains(said, text)
	}, &code, &said)
}
