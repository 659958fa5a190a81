package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/trace"
	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // what is printed is in the reader's zone
	testscript.Main(m, map[string]func(){"cl-bridge": main, "cl-worker": nodeWorker})
}

// TestScripts runs testdata/script. Each has the traces trace, changed, whose
// policy was another one, and torn; a registry of its own (startRegistry); and a
// site (startSite).
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), ContinueOnError: true, RequireUniqueNames: true, UpdateScripts: *update,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"registry": registryCommand},
		Setup: func(env *testscript.Env) error {
			startRegistry(t, env)
			startSite(t, env)

			// Under the race detector each cl-bridge would wait a second at its end.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			policy := plan.Policy{LongestAckPause: time.Minute, Queues: map[string]plan.Queue{"cpu": {Name: "cpu", Tag: "cpu"}}}
			whole, err := record(filepath.Join(env.WorkDir, "trace"), policy)
			if err != nil {
				return err
			}
			policy.Queues = map[string]plan.Queue{"cpu": {Name: "cpu", Tag: "cpu", MaxTime: time.Second}}
			if _, err := record(filepath.Join(env.WorkDir, "changed"), policy); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(env.WorkDir, "torn"), whole[:len(whole)-9], 0o600)
		},
	})
}

// record writes a trace of two bundles that are claimed and staged, under the
// header of a policy, and returns it.
func record(path string, header plan.Policy) ([]byte, error) {
	w, err := trace.Open(path, trace.Header{Build: "test", Policy: header}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	policy := plan.Policy{LongestAckPause: time.Minute, Queues: map[string]plan.Queue{"cpu": {Name: "cpu", Tag: "cpu"}}}
	for _, bundle := range []string{"0x0123456789abcdef0123456789abcdef", "0xf0123456789abcdef0123456789abcde"} {
		now := time.Unix(1_800_000_000, 0).UTC()
		row := plan.NewRow(now, "cpu", codalab.Message{
			Bundle: &codalab.RunBundle{UUID: bundle, Command: "true"}, Resources: &codalab.Resources{CPUs: 1, Time: 3600},
		})
		for _, n := range []plan.News{{}, {Claimed: &plan.Claimed{Accepted: true}}, {Staged: &plan.StageEnd{}}} {
			next, effects := policy.Next(now, row, n)
			w.Record(plan.Decision{Now: now, Row: row, News: n, Next: next, Effects: plan.KindsOf(effects)})
			row, now = next, now.Add(time.Second)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.Run(ctx)
	return os.ReadFile(path)
}
