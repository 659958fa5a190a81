package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/status"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func TestStatusSaysHowTheBridgeStands(t *testing.T) {
	t.Parallel()
	r, layout := littered(t)
	book, release, err := takeLedger(t.Context(), r.where)
	if err != nil {
		t.Fatal(err)
	}
	rows := []plan.Row{
		{Bundle: bundleNo(5), Queue: "cpu", Phase: plan.Queued, OfferedAt: noon.Add(-3 * time.Hour), PhaseSince: noon.Add(-2 * time.Hour), Attempt: plan.Attempt{Job: sbatch.Job{ID: 4711, State: sbatch.StatePending, Reason: "Priority"}}},
		{Bundle: bundleNo(6), Queue: "cpu", Phase: plan.Submitting, OfferedAt: noon.Add(-time.Hour), Retry: plan.Retry{FailedTries: 3, LastFailure: "Slurm does not take the job now: too many jobs"}},
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
		out, err := command(t, append([]string{"status", "--config", r.config}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	u, file := status.Heartbeat{Host: "login1", Process: 12, Started: noon.Add(-5 * time.Hour), At: noon.Add(-time.Second)}, r.where+".status.json"
	u.Slurm = "observe: slurm_load_jobs error: Unable to contact slurm controller"
	u.SlurmSince, u.SlurmNext = noon.Add(-time.Minute), noon.Add(time.Minute)
	u.Server = map[string]string{"cpu": "POST /workers: connection refused"}
	u.Write(file)
	var s status.Status
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
! 1 bundle in submitting is tried again: Slurm does not take the job now: too many jobs.

QUEUE  staging  submitting  queued  running
cpu    1        1           2       0
old    0        0           0       1

The oldest bundle that waits is ` + bundleNo(5) + `, of queue cpu, claimed 3h0m ago; it is queued, since 2h0m ago:
  Slurm job 4711 waits (Priority).
`
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	release()
	u.Failure, u.Ended = "the ledger is older than Slurm's jobs", noon
	u.Write(file)
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
		err = os.WriteFile(low, append([]byte("low_water = \"900000t\"\n"), text...), 0o600)
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
	_, err := command(t, "status", "--config", r.config, "--ledger", filepath.Join(t.TempDir(), "none.db"))
	if err == nil || !strings.Contains(err.Error(), "no bridge has made a ledger") {
		t.Errorf("error %v", err)
	}
}
