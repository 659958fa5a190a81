package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestStatusSaysHowTheBridgeStands(t *testing.T) {
	t.Parallel()
	r, layout := littered(t)
	book, release, err := assembly.TakeLedger(t.Context(), r.where)
	if err != nil {
		t.Fatal(err)
	}
	rows := []plan.Row{
		{Bundle: bundleNo(5), Queue: "cpu", Phase: plan.Queued, OfferedAt: noon.Add(-3 * time.Hour), PhaseSince: noon.Add(-2 * time.Hour), Attempt: plan.Attempt{Job: sbatch.Job{ID: 4711, State: sbatch.StatePending, Reason: "Priority"}}},
		{Bundle: bundleNo(6), Queue: "cpu", Phase: plan.Staging, Staged: &spool.Inputs{}, OfferedAt: noon.Add(-time.Hour), Retry: plan.Retry{FailedTries: 3, LastFailure: "Slurm does not take the job now: too many jobs"}},
		{Bundle: bundleNo(7), Queue: "old", Phase: plan.Running, OfferedAt: noon.Add(-9 * time.Hour)},
		{Bundle: bundleNo(8), Queue: "cpu", Phase: plan.Queued, OfferedAt: noon.Add(-time.Minute)},
	}
	first := rowAt(1, plan.Staging, 0, 0)
	first.Version, first.OfferedAt = 1, noon
	if err := book.Save(t.Context(), append(rows, first)); err != nil {
		t.Fatal(err)
	}
	say := func(args ...string) string {
		t.Helper()
		out, err := statusOf(t, append([]string{"--config", r.config}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	held, err := lease.Acquire(t.Context(), layout.BridgeDir(), lease.Holder{Bridge: r.id}, func(lease.Holder) bool { return true }, nil)
	if err != nil {
		t.Fatal(err)
	}
	u := heartbeat.Heartbeat{Host: "login1", Process: 12, Started: noon.Add(-5 * time.Hour), At: noon.Add(-time.Second)}
	u.Slurm = "observe: slurm_load_jobs error: Unable to contact slurm controller"
	u.SlurmSince, u.SlurmNext = noon.Add(-time.Minute), noon.Add(time.Minute)
	u.Server = map[string]string{"cpu": "POST /workers: connection refused"}
	u.UnansweredQueues, u.LateQueues = []string{"gpu", "old"}, []string{"new"}
	if err := held.Renew(t.Context(), heartbeat.Status{Last: &u}); err != nil {
		t.Fatal(err)
	}
	var s heartbeat.Status
	if err := json.Unmarshal([]byte(say("--json")), &s); err != nil {
		t.Fatal(err)
	}
	free := s.Disk
	if free.Free <= 0 || free.Total < free.Free || free.Files < free.FreeFiles || !s.Running || s.Oldest == nil || s.Oldest.Bundle != bundleNo(5) || s.Last.Process != 12 {
		t.Errorf("in JSON: %+v", s)
	}
	said := strings.NewReplacer(r.where, "LEDGER", r.id, "b1b2b3", string(layout), "SHARED").Replace(say())
	first4 := strings.SplitN(said, "\n", 4)
	if !strings.HasPrefix(first4[2], "The shared disk at SHARED has ") {
		t.Errorf("it says %q of the disk", first4[2])
	}
	want := `Bridge b1b2b3 runs on login1, since ` + termtext.Clock(noon.Add(-5*time.Hour)) + `.
The ledger is LEDGER.
` + first4[2] + `

! Slurm has not been seen as a whole since the bridge started: until then nothing is submitted, cancelled or removed.
! Slurm has not answered since ` + termtext.Clock(noon.Add(-time.Minute)) + `, and is asked again at ` + termtext.Clock(noon.Add(time.Minute)) + `: observe: slurm_load_jobs error: Unable to contact slurm controller. Until then nothing is submitted or cancelled.
! The server does not take the check-ins of queue cpu: POST /workers: connection refused.
! The server has not answered a check-in of queue gpu, old since the bridge started.
! The server takes the reports of queue new too slowly: no bundle of it is claimed until it hears of each run in time.
! 1 bundle in staging is tried again: Slurm does not take the job now: too many jobs.

QUEUE  staging  queued  running
cpu    2        2       0
old    0        0       1

BUNDLES  PHASE   WAIT FOR
1        queued  Slurm says Priority

The oldest bundle that waits is ` + bundleNo(5) + `, of queue cpu, claimed 3h0m ago; it is queued, since 2h0m ago:
  Slurm job 4711 waits (Priority): jobs with a higher priority come first.
`
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	release()
	u.Failure, u.Ended = "the ledger is older than Slurm's jobs", noon
	if err := held.End(heartbeat.Status{Last: &u}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"! No bridge runs on this ledger. The last one ended at " + termtext.Clock(noon) + ": the ledger is older than Slurm's jobs.\n",
		"does not run.\n",
	} {
		if got := say(); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	low := strings.Replace(r.config, "bridge.toml", "low.toml", 1)
	text, err := os.ReadFile(r.config)
	if err == nil {
		err = os.WriteFile(low, bytes.Replace(text, []byte(`"64m"`), []byte(`"900000t"`), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.config = low
	if got := say(); !strings.Contains(got, "! No bundle is claimed, and no inputs are brought in: the site's disk has ") {
		t.Errorf("below the low water it says\n%s", got)
	}
	if err := os.RemoveAll(string(layout)); err != nil {
		t.Fatal(err)
	}
	if got := say(); !strings.Contains(got, "! The shared disk is not there: ") {
		t.Errorf("without the disk it says\n%s", got)
	}
}

func TestStatusWithoutALedgerSaysSo(t *testing.T) {
	t.Parallel()
	r, _ := littered(t)
	_, err := statusOf(t, "--config", r.config, "--ledger", filepath.Join(t.TempDir(), "none.db"))
	if err == nil || !strings.Contains(err.Error(), "no bridge has made a ledger") {
		t.Errorf("error %v", err)
	}
}

// The words of each bundle name that bundle; the cause is one.
func TestStatusGroupsWhatHoldsManyBundlesUpByCause(t *testing.T) {
	t.Parallel()
	r, _ := littered(t)
	book := lockLedger(t, r.where)
	var rows []plan.Row
	for i := range 100 {
		failing := plan.Row{Bundle: fmt.Sprintf("0xc%031d", i), Queue: "cpu", Phase: plan.Collecting}
		failing.FailedTries, failing.LastFailure = 1, fmt.Sprintf("PUT /bundles/%s/contents: 502 after %d s", failing.Bundle, i)
		waiting := plan.Row{Bundle: fmt.Sprintf("0xe%031d", i), Queue: "cpu", Phase: plan.Queued}
		waiting.Job = sbatch.Job{ID: sbatch.JobID(4000 + i), State: sbatch.StatePending, Reason: "QOSMaxJobsPerUserLimit"}
		rows = append(rows, failing, waiting)
	}
	if err := book.Save(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	out, err := statusOf(t, "--config", r.config)
	for _, want := range []string{
		"! 100 bundles in collecting are tried again: PUT /bundles/0xc0000000000000000000000000000000/contents: 502 after 0 s.\n",
		"\n100      queued  Slurm says QOSMaxJobsPerUserLimit\n",
	} {
		if err != nil || strings.Count(out, want) != 1 {
			t.Errorf("%v, no line %q in\n%s", err, want, out)
		}
	}
	if strings.Contains(out, "other reasons") {
		t.Errorf("one cause has several lines:\n%s", out)
	}
	var s heartbeat.Status
	if out, err = statusOf(t, "--json", "--config", r.config); err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil || len(s.Waits) != 2 || s.Waits[0].Bundles != 100 || !s.Waits[0].TriedAgain || s.Waits[1].Bundles != 100 || s.Waits[1].Cause != "Slurm says QOSMaxJobsPerUserLimit" {
		t.Errorf("in JSON: %v, %+v", err, s.Waits)
	}
}

func TestStatusOfABridgeThatHasJustStartedSaysNothingUntrue(t *testing.T) {
	t.Parallel()
	r, layout := littered(t)
	lockLedger(t, r.where)
	wants := func(when string, wants []string, not ...string) {
		t.Helper()
		out, err := statusOf(t, "--config", r.config)
		for _, want := range wants {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%s: %v, no %q in\n%s", when, err, want, out)
			}
		}
		for _, untrue := range append(not, "Nothing holds it up") {
			if strings.Contains(out, untrue) {
				t.Errorf("%s: %q in\n%s", when, untrue, out)
			}
		}
	}
	starting := []string{" is starting.\n", "What holds it up is not known yet.\n"}
	wants("it has the lock of its ledger only", starting)

	takes := func(bridge string) *lease.Lease {
		t.Helper()
		held, err := lease.Acquire(t.Context(), layout.BridgeDir(), lease.Holder{Bridge: bridge, Host: "login0"}, func(lease.Holder) bool { return true }, nil)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	take := func() *lease.Lease { t.Helper(); return takes(r.id) }
	takes("ffffff")
	wants("it waits for the lease of another", append(starting, "! The shared directory is held by bridge ffffff (process 0 on login0"))
	renew := func(held *lease.Lease, h heartbeat.Heartbeat) {
		t.Helper()
		if err := held.Renew(t.Context(), heartbeat.Status{Last: &h}); err != nil {
			t.Fatal(err)
		}
	}
	before := heartbeat.Heartbeat{Host: "login1", At: noon.Add(-time.Hour)}
	before.Slurm = "slurmctld is away"
	held := take()
	renew(held, before)
	wants("the bridge before it crashed", []string{"its last heartbeat was 1h0m ago", "! The bridge's last heartbeat is old"}, "slurmctld is away")
	before.Ended, before.Failure = before.At, "its disk was full"
	if err := held.End(heartbeat.Status{Last: &before}); err != nil {
		t.Fatal(err)
	}
	wants("the bridge before it ended", starting, "slurmctld is away", "its disk was full", "login1")

	held = take()
	wants("it has the lease", starting, "login1")
	now := heartbeat.Heartbeat{Host: "login2", Started: noon, At: noon}
	now.UnansweredQueues = []string{"cpu"}
	renew(held, now)
	wants("nothing has answered", []string{"runs on login2", "waits for the first answer of Slurm and of the server for queue cpu.\n"}, "!")
}

func TestStatusThatCannotReadTheHeartbeatDoesNotCallTheBridgeStarting(t *testing.T) {
	t.Parallel()
	r, layout := littered(t)
	lockLedger(t, r.where)
	if err := os.WriteFile(layout.BridgeDir(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := statusOf(t, "--config", r.config)
	for _, want := range []string{"Bridge " + r.id + " runs.\n", "! The bridge's heartbeat cannot be read: "} {
		if err != nil || !strings.Contains(out, want) || strings.Contains(out, "starting") {
			t.Errorf("%v, want %q in\n%s", err, want, out)
		}
	}
}

// statusOf returns what status prints, and its error if that has words: one without is only an exit code.
func statusOf(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := command(t, append([]string{"status"}, args...)...)
	if coded, ok := errors.AsType[*program.Error](err); ok && coded.Err == nil {
		return out, nil
	}
	return out, err
}

// wordless returns the error of a program, or none if it is only an exit code.
func wordless(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) == 0 {
		return nil
	}
	return err
}

// A monitoring system asks for the exit code alone.
func TestStatusEndsWithACodeForEachState(t *testing.T) {
	t.Parallel()
	r, layout := littered(t)
	wants := func(state string, want int, args ...string) {
		t.Helper()
		out, err := command(t, append([]string{"status", "--config", r.config}, args...)...)
		if code := program.Code(t.Context(), err); code != want {
			t.Errorf("%s: it ends with %d, want %d: %v\n%s", state, code, want, err, out)
		}
	}
	wants("no bridge has ever run", 3, "--ledger", filepath.Join(t.TempDir(), "none.db"))
	wants("no bridge runs", 3)
	lockLedger(t, r.where)
	held, err := lease.Acquire(t.Context(), layout.BridgeDir(), lease.Holder{Bridge: r.id}, func(lease.Holder) bool { return true }, nil)
	if err != nil {
		t.Fatal(err)
	}
	beat := func(change func(h *heartbeat.Heartbeat)) {
		t.Helper()
		h := heartbeat.Heartbeat{Host: "login1", Started: noon.Add(-time.Hour), At: noon}
		h.Open, h.Observed = true, noon
		change(&h)
		if err := held.Renew(t.Context(), heartbeat.Status{Last: &h}); err != nil {
			t.Fatal(err)
		}
	}
	beat(func(*heartbeat.Heartbeat) {})
	wants("all is well", 0)
	wants("all is well, in JSON", 0, "--json")
	beat(func(h *heartbeat.Heartbeat) { h.Slurm = "slurmctld is away" })
	wants("an obstacle", 1)
	beat(func(h *heartbeat.Heartbeat) { h.At = noon.Add(-time.Hour) })
	wants("an old heartbeat", 1)
	wants("a wrong flag", 2, "--nosuch")
	wants("the ledger's server is down", 3, "--ledger", "postgres://ann@127.0.0.1:1/x?sslmode=disable")
}

// The first answers take some seconds: the server holds a check-in for five.
func TestStatusOfABridgeInItsFirstSecondsShowsNoFalseObstacle(t *testing.T) {
	t.Parallel()
	r, layout := littered(t)
	lockLedger(t, r.where)
	held, err := lease.Acquire(t.Context(), layout.BridgeDir(), lease.Holder{Bridge: r.id}, func(lease.Holder) bool { return true }, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		age       time.Duration
		slurm     string
		wants     []string
		obstacles int
	}{
		{5 * time.Second, "", []string{"The bridge has just started, and waits for the first answer of Slurm and of the server for queue cpu, gpu.\n"}, 0},
		{5 * time.Second, "slurmctld is away", []string{"waits for the first answer of the server for queue cpu, gpu.\n", "! Slurm does not answer: slurmctld is away."}, 1},
		{time.Minute, "", []string{"! Slurm has not been seen as a whole", "! The server has not answered a check-in of queue cpu, gpu"}, 2},
	} {
		h := heartbeat.Heartbeat{Host: "login1", Started: noon.Add(-c.age), At: noon}
		h.Open, h.UnansweredQueues, h.Slurm = true, []string{"cpu", "gpu"}, c.slurm
		if err := held.Renew(t.Context(), heartbeat.Status{Last: &h}); err != nil {
			t.Fatal(err)
		}
		out, err := statusOf(t, "--config", r.config)
		for _, want := range c.wants {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%s after the start: %v, no %q in\n%s", c.age, err, want, out)
			}
		}
		if got := strings.Count(out, "\n! "); got != c.obstacles {
			t.Errorf("%s after the start: %d obstacles, want %d, in\n%s", c.age, got, c.obstacles, out)
		}
	}
}

func TestWatchShowsTheStatusUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	r, _ := littered(t)
	for _, flag := range []string{"", "--json"} {
		ctx, interrupt := context.WithCancel(t.Context())
		out := &interrupting{interrupt: interrupt}
		args := append([]string{"status", "--watch", "--config", r.config}, strings.Fields(flag)...)
		err := run(ctx, program.Process{Args: args, Stdin: strings.NewReader(""), Stdout: out, Stderr: out, Getenv: noConfiguration, Now: func() time.Time { return noon }})
		if code := program.Code(ctx, err); code != 0 || !strings.Contains(out.said.String(), "No bridge runs on this ledger.") {
			t.Errorf("--watch %s ends with %d, %v, and has printed\n%s", flag, code, err, &out.said)
		}
		if lines := strings.Count(out.said.String(), "\n"); flag == "--json" && lines != 1 {
			t.Errorf("a status has %d lines of JSON", lines)
		}
	}
}

// interrupting is a standard output at whose first text the user interrupts the program.
type interrupting struct {
	said      bytes.Buffer
	interrupt func()
}

func (w *interrupting) Write(text []byte) (int, error) {
	w.interrupt()
	return w.said.Write(text)
}
