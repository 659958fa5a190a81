package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const (
	inSlurm = "0x1a2b3c4d5e6f708192a3b4c5d6e7f809"
	failing = "0x1a2c0000000000000000000000000000"
	gone    = "0x99000000000000000000000000000000"
)

// command runs cl-bridge at noon.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), program.Process{
		Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
		Getenv: noConfiguration, Now: func() time.Time { return noon },
	})
	return out.String(), err
}

// written is the place of a ledger with three bundles, which a bridge has open
// as long as the test runs.
func written(t *testing.T, where string) string {
	t.Helper()
	book := lockLedger(t, where)
	clock := noon.Add(-2 * time.Hour)
	decide := func(r *plan.Row, phase plan.Phase, reason string) {
		clock = clock.Add(time.Minute)
		if r.Phase != phase {
			r.Phase, r.PhaseSince = phase, clock
		}
		r.Reason, r.DecidedAt = reason, clock
		saved := []plan.Row{*r}
		if err := book.Save(t.Context(), saved); err != nil {
			t.Fatal(err)
		}
		*r = saved[0]
	}
	a := plan.Row{Bundle: inSlurm, Queue: "gpu"}
	decide(&a, plan.Claiming, "the server offered the bundle")
	decide(&a, plan.Staging, "the server confirmed the claim")
	a.Attempt.Number, a.SubmissionName = 1, "cl-ann-1a2b3c4d5e6f.1-9f02ab"
	decide(&a, plan.Submitting, "there is room in Slurm")
	a.Job = sbatch.Job{ID: 4711, State: sbatch.StatePending, Reason: "Priority"}
	decide(&a, plan.Queued, "Slurm accepted the job")

	b := plan.Row{Bundle: failing, Queue: "cpu", Retry: plan.Retry{FailedTries: 80, LastFailure: "no route\n\x1b[2Jto host"}, DueAt: noon.Add(30 * time.Second)}
	decide(&b, plan.Claiming, "the server offered the bundle")
	for i := range 80 {
		decide(&b, plan.Staging, "try "+strconv.Itoa(i+1)+" failed: no route\n\x1b[2Jto host")
	}
	code := 3
	c := plan.Row{Bundle: gone, Queue: "cpu", Attempt: plan.Attempt{Number: 1, Job: sbatch.Job{ID: sbatch.JobID(4800).Task(3)}, Begun: &spool.Started{Node: "n1"}}, Verdict: &plan.Verdict{Cause: spool.CauseUser, ExitCode: &code}}
	decide(&c, plan.Done, "the server acknowledged the verdict")
	if err := book.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return where
}

func TestExplainSaysWhereABundleIsAndWhy(t *testing.T) {
	t.Parallel()
	for kind, place := range map[string]func(*testing.T) string{
		"SQLite":     func(t *testing.T) string { t.Helper(); return filepath.Join(t.TempDir(), "ledger.db") },
		"PostgreSQL": func(t *testing.T) string { t.Helper(); return testenv.Postgres(t) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			where := written(t, place(t))
			for bundle, want := range map[string]string{
				"0x1a2b": `0x1a2b3c4d5e6f708192a3b4c5d6e7f809 is queued

  queue      gpu
  since      2026-11-20 10:04:00 +0000, 1h56m ago
  reason     Slurm accepted the job
  attempt    1, job 4711, PENDING (Priority)
  waits for  Slurm to start job 4711

TIME                       ATTEMPT  JOB   PHASE       REASON
2026-11-20 10:01:00 +0000  -        -     claiming    the server offered the bundle
2026-11-20 10:02:00 +0000  -        -     staging     the server confirmed the claim
2026-11-20 10:03:00 +0000  1        -     submitting  there is room in Slurm
2026-11-20 10:04:00 +0000  1        4711  queued      Slurm accepted the job
`,
				"4800_3": `0x99000000000000000000000000000000 is done and forgotten; this was its history:

TIME                       ATTEMPT  JOB     PHASE  REASON
2026-11-20 11:26:00 +0000  1        4800_3  done   the server acknowledged the verdict
`,
			} {
				got, err := command(t, "explain", bundle, "--ledger", where)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("explain %s (-want +got):\n%s", bundle, diff)
				}
			}
			got, err := command(t, "explain", failing, "--ledger", where)
			for _, want := range []string{
				"  failed     80 tries; the last: no route \\u001b[2Jto host\n",
				"  next look  2026-11-20 12:00:30 +0000, in 30.0s\n",
				"(17 entries are not kept)\n",
			} {
				if err != nil || !strings.Contains(got, want) {
					t.Errorf("explain %s: %v, no %q in\n%s", failing, err, want, got)
				}
			}
		})
	}
}

func TestExplainPrintsJSON(t *testing.T) {
	t.Parallel()
	where := written(t, filepath.Join(t.TempDir(), "ledger.db"))
	config := filepath.Join(t.TempDir(), "bridge.toml")
	text := "server = \"http://127.0.0.1:1\"\nuser = \"ann\"\npassword_file = \"p\"\nshared = \"/s\"\nledger = \"" + where + "\"\n[queue.cpu]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, "explain", inSlurm, "--json", "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	var got heartbeat.Explanation
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.History) != 4 || got.History[3].Job != 4711 {
		t.Errorf("history %+v", got.History)
	}
	got.History = nil
	want := heartbeat.Explanation{
		Bundle: inSlurm, Queue: "gpu", Phase: plan.Queued, Since: noon.Add(-116 * time.Minute), Reason: "Slurm accepted the job",
		WaitsFor: "Slurm to start job 4711", Attempt: 1, Job: 4711, JobState: sbatch.StatePending, JobReason: "Priority",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("explanation (-want +got):\n%s", diff)
	}
}

func TestExplainSaysWhatItCannotFind(t *testing.T) {
	t.Parallel()
	where := written(t, filepath.Join(t.TempDir(), "ledger.db"))
	nowhere := filepath.Join(t.TempDir(), "x", "ledger.db")
	for _, test := range []struct {
		want string
		code int
		args []string
	}{
		{"no bundle whose UUID begins with 0x7 in the ledger " + where, 1, []string{"0x7", "--ledger", where}},
		{"no bundle 0x77000000000000000000000000000000 in the ledger", 1, []string{"0x77000000000000000000000000000000", "--ledger", where}},
		{"0x1a2 is the beginning of several bundles: " + inSlurm + ", " + failing, 2, []string{"0x1a2", "--ledger", where}},
		{"no bundle named train in the ledger " + where, 1, []string{"train", "--ledger", where}},
		{"no bundle of job 99 in the ledger " + where, 1, []string{"99", "--ledger", where}},
		{`"a b" names no bundle: want its UUID`, 2, []string{"a b", "--ledger", where}},
		{"no bundle of job 4711_3 in the ledger " + where, 1, []string{"4711_3", "--ledger", where}},
		{`"4711_[3]" names no bundle`, 2, []string{"4711_[3]", "--ledger", where}},
		{"no configuration: ", 2, []string{inSlurm}},
		{"accepts 1 arg(s)", 2, []string{"--ledger", where}},
		{"no bridge has made a ledger at " + nowhere + " yet", 1, []string{inSlurm, "--ledger", nowhere}},
		{"--ledger: the URL is not written as", 2, []string{inSlurm, "--ledger", "postgres:/ann:secret@h/x"}},
		{"open database postgres://ann@127.0.0.1:1/x: the database does not answer", 3, []string{inSlurm, "--ledger", "postgres://ann:secret@127.0.0.1:1/x?sslmode=disable"}},
	} {
		out, err := command(t, append([]string{"explain"}, test.args...)...)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") || out != "" {
			t.Errorf("explain %q: %v, want %q", test.args, err, test.want)
		}
		if code := program.Code(context.Background(), err); code != test.code {
			t.Errorf("explain %q ends with %d, want %d", test.args, code, test.code)
		}
	}
	if _, err := os.Stat(filepath.Dir(nowhere)); !errors.Is(err, os.ErrNotExist) {
		t.Error("a directory was made for a ledger that is only read")
	}
}

func TestExplainCompletesBundles(t *testing.T) {
	t.Parallel()
	where := written(t, filepath.Join(t.TempDir(), "ledger.db"))
	for begun, want := range map[string][]string{
		"": {inSlurm, failing, gone}, "0x1a2c": {failing}, "0x9": {gone}, "0x5": {}, "x": {},
	} {
		out, err := command(t, "__completeNoDesc", "explain", "--ledger", where, begun)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for l := range strings.Lines(out) {
			if strings.HasPrefix(l, "0x") {
				got = append(got, strings.TrimSpace(l))
			}
		}
		if diff := cmp.Diff(want, append([]string{}, got...)); diff != "" {
			t.Errorf("completion of %q (-want +got):\n%s", begun, diff)
		}
	}
}

func TestSecondBridgeOnALedgerIsRefused(t *testing.T) {
	t.Parallel()
	where := filepath.Join(t.TempDir(), "new", "ledger.db")
	_, release, err := assembly.TakeLedger(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := assembly.TakeLedger(t.Context(), where); err == nil || !strings.Contains(err.Error(), "another cl-bridge") {
		t.Errorf("second bridge: %v", err)
	}
	release()
	book, release, err := assembly.TakeLedger(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := book.Rows(t.Context()); err != nil {
		t.Error(err)
	}
}
