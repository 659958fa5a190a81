package testsite_test

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// pass makes one pass of the bridge as cron does, and returns its exit code and its log.
func pass(t *testing.T, s *testsite.Site) (code int, log string) {
	t.Helper()
	var said bytes.Buffer
	c := s.Program("cl-bridge", "run", "--once", "--config", s.BridgeConfig())
	c.Stderr = &said
	err := c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), said.String()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, said.String()
}

// A crontab in place of a bridge: bundles wait and run between passes, and none is lost.
func TestPassesOfCronDoTheWholeJob(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{ServerFlags: []string{"--worker-timeout", "10s"}})
	if code, log := pass(t, s); code != 3 || !strings.Contains(log, "another cl-bridge works on it") {
		t.Fatalf("beside a bridge, a pass ends with %d:\n%s", code, log)
	}
	testenv.Must(t, s.StopBridge())

	bundle := run(t, s, "cpu", "sleep 20; echo done")
	if code, log := pass(t, s); code != 0 || !strings.Contains(log, "the pass ends") {
		t.Fatalf("the first pass ends with %d:\n%s", code, log)
	}
	if handle := field(t, s, bundle, "job_handle"); handle == "" {
		t.Error("after the first pass the bundle has no job")
	}
	until(t, s, bundle, "state", "^worker_offline$") // the server counts the bridge as gone
	state := ""
	testenv.Await(t, "passes run the bundle to its end", func() bool {
		if code, log := pass(t, s); code != 0 {
			t.Fatalf("a pass ends with %d:\n%s", code, log)
		}
		state = field(t, s, bundle, "state")
		return state == "ready"
	}, &state)
	if out := cl(t, s, "cat", bundle+"/stdout"); out != "done" {
		t.Errorf("its output is %q", out)
	}
}
