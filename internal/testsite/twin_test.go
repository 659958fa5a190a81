package testsite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// A lost state directory, --ledger, or a second login node makes a twin: a bridge of the same name with
// another ledger. It is refused, and the bridge goes on with its jobs.
func TestTwinBesideABridgeWithJobsInFlightIsRefused(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{Config: often("")})
	waits := "echo once; while [ ! -e go ]; do sleep 0.1; done"
	stays, doomed := run(t, s, "cpu", waits), run(t, s, "cpu", waits)
	jobs := []string{begun(t, s, stays), begun(t, s, doomed)}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	twin := []string{program, "run", "--config", s.BridgeConfig(), "--ledger", filepath.Join(filepath.Dir(s.Ledger()), "other.db")}
	elsewhere := append([]string{"unshare", "--uts", "sh", "-c", `hostname elsewhere && exec /usr/sbin/runuser -u ` + testsite.User + ` -- env PATH="$PATH" SLURM_CONF="$SLURM_CONF" HOME=/ "$@"`, "sh"}, twin...)
	for name, try := range map[string]func() error{
		"on the bridge's host": func() error { _, err := s.Run(t.Context(), twin...); return err },
		"on another host":      func() error { return tryAdmin(t, elsewhere...) },
	} {
		var ended *command.Error
		if err := try(); !errors.As(err, &ended) || ended.ExitCode != 1 {
			t.Fatalf("a twin %s: %v, want exit code 1", name, err)
		}
		t.Logf("a twin %s: %s", name, ended.Stderr)
		for _, want := range []string{filepath.Join(s.Shared, "bridge") + " is held by bridge ", fmt.Sprintf(" on %s, with the ledger %s), which runs: stop that one first", host, s.Ledger())} {
			if !strings.Contains(ended.Stderr, want) {
				t.Errorf("a twin %s: no %q in\n%s", name, want, ended.Stderr)
			}
		}
	}
	if said := status(t, s); !strings.Contains(said, " runs on "+host+", since ") {
		t.Errorf("status of the bridge:\n%s", said)
	}
	// Reads and kills reach the bridge, and its jobs are those from before.
	untilPrinted(t, s, stays, "once")
	cl(t, s, "kill", doomed)
	if state := ended(t, s, doomed); state != "killed" {
		t.Errorf("the bundle that was killed is %s", state)
	}
	release(t, s, stays)
	ranOnce(t, s, stays)
	for i, bundle := range []string{stays, doomed} {
		if e := explain(t, s, bundle); fmt.Sprint(e.Job) != jobs[i] || e.Attempt != 1 {
			t.Errorf("bundle %s is attempt %d as job %d, want the first as job %s", bundle, e.Attempt, e.Job, jobs[i])
		}
	}
}
