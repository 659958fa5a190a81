package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// littered is a site with a shared directory on which are the files of bundle 1,
// which has a row, of bundle 2, which has a job, and of bundle 3, which nobody
// needs. They are a moment old.
func littered(t *testing.T) (r restored, layout spool.Layout) {
	t.Helper()
	r = restore(t, "", rowAt(1, plan.Staging, 0, 0))
	layout = spool.Layout(r.shared)
	var err error
	for _, dir := range layout.Directories() {
		err = errors.Join(err, os.MkdirAll(dir, 0o700))
	}
	for n := 1; n <= 3; n++ {
		mark := fmt.Sprintf("cl-ann-%s.1-%s", bundleNo(n)[2:14], r.id)
		spec := spool.Spec{Bundle: bundleNo(n), Attempt: 1, SubmissionName: mark, RunDir: layout.RunDir(bundleNo(n), 1)}
		err = errors.Join(err, spool.Disk{Layout: layout}.Prepare(spec))
	}
	if err != nil {
		t.Fatal(err)
	}
	r.submits(t, 2, 1, 4, sbatch.StatePending)
	return r, layout
}

// Files cannot be made old: what is swept in truth, and what not, package sweep
// tests. Here they are too young.
func TestSweepLeavesWhatIsYoung(t *testing.T) {
	t.Parallel()
	r, layout := littered(t)
	_, release, err := takeLedger(t.Context(), r.where) // beside a bridge
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for args, want := range map[string]string{
		"":          "removed 0 leftovers, 0\n",
		"-n":        "0 leftovers, 0, would be removed; nothing was\n",
		"--json":    "{\n  \"dry_run\": false,\n  \"findings\": []\n}\n",
		"--dry-run": "0 leftovers, 0, would be removed; nothing was\n",
	} {
		out, err := command(t, append([]string{"sweep", "--config", r.config}, strings.Fields(args)...)...)
		if err != nil || out != want {
			t.Errorf("sweep %s: %v, %q", args, err, out)
		}
	}
	for n := 1; n <= 3; n++ {
		if _, err := layout.Attempt(bundleNo(n), 1).ReadSpec(); err != nil {
			t.Error(err)
		}
	}
}

func TestSweepPutsBackAndRemovesWhatOneThatDiedHadPutAside(t *testing.T) {
	t.Parallel()
	r, layout := littered(t)
	disk := spool.Disk{Layout: layout}
	left, err := disk.Leftovers(func(string) bool { return false })
	now, nowErr := disk.Now()
	if err := errors.Join(err, nowErr); err != nil {
		t.Fatal(err)
	}
	for _, l := range left {
		if _, err := disk.PutAside(l, now); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func(args ...string) string {
		t.Helper()
		out, err := command(t, append([]string{"sweep", "--config", r.config}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := sweep("-n"); !strings.Contains(out, "would go") || !strings.Contains(out, "gets it back") || !strings.Contains(out, "\n3 leftovers, ") {
		t.Errorf("the dry run says\n%s", out)
	}
	var found swept
	if err := json.Unmarshal([]byte(sweep("--json")), &found); err != nil || found.DryRun || len(found.Findings) != 9 {
		t.Errorf("%v, %+v", err, found)
	}
	removed, kept := 0, 0
	for _, f := range found.Findings {
		if f.Removed {
			removed++
		}
		if f.Kept {
			kept++
		}
	}
	if removed != 3 || kept != 6 {
		t.Errorf("%d were removed and %d kept of %+v", removed, kept, found.Findings)
	}
	for n, want := range map[int]error{1: nil, 2: nil, 3: spool.ErrNone} {
		if _, err := layout.Attempt(bundleNo(n), 1).ReadSpec(); !errors.Is(err, want) {
			t.Errorf("bundle %d: %v, want %v", n, err, want)
		}
	}
}

func TestI5SweepTouchesNothingOnAnOldLedger(t *testing.T) {
	t.Parallel()
	r, layout := littered(t)
	r.submits(t, 9, 1, 9, sbatch.StatePending)
	_, err := command(t, "sweep", "--config", r.config)
	if err == nil || !strings.Contains(err.Error(), "the ledger is older than Slurm's jobs") || !strings.Contains(err.Error(), "cl-bridge recover --config") {
		t.Errorf("error %v", err)
	}
	if _, err := layout.Attempt(bundleNo(3), 1).ReadSpec(); err != nil {
		t.Error(err)
	}
}

func TestSweepNeedsALedgerAndSlurm(t *testing.T) {
	t.Parallel()
	r, _ := littered(t)
	_, err := command(t, "sweep", "--config", r.config, "--ledger", filepath.Join(t.TempDir(), "none.db"))
	if err == nil || !strings.Contains(err.Error(), "without one nobody can say what is needed") {
		t.Errorf("without a ledger: %v", err)
	}
	r.slurm.stop(t)
	_, err = command(t, "sweep", "--config", r.config)
	var coded *program.Error
	if !errors.As(err, &coded) || coded.Code != program.ExitTransient {
		t.Errorf("without Slurm: %v", err)
	}
}

func TestStatusSaysHowTheBridgeStands(t *testing.T) {
	t.Parallel()
	r, layout := littered(t)
	book, release, err := takeLedger(t.Context(), r.where)
	if err != nil {
		t.Fatal(err)
	}
	rows := []plan.Row{
		{Bundle: bundleNo(5), Queue: "cpu", Phase: plan.Queued, Claimed: noon.Add(-3 * time.Hour), Since: noon.Add(-2 * time.Hour), Job: sbatch.Job{ID: 4711, State: sbatch.StatePending, Reason: "Priority"}},
		{Bundle: bundleNo(6), Queue: "cpu", Phase: plan.Submitting, Claimed: noon.Add(-time.Hour), Tries: 3, Trouble: "Slurm does not take the job now: too many jobs"},
		{Bundle: bundleNo(7), Queue: "old", Phase: plan.Running, Claimed: noon.Add(-9 * time.Hour)},
		{Bundle: bundleNo(8), Queue: "cpu", Phase: plan.Queued, Claimed: noon.Add(-time.Minute)},
	}
	first := rowAt(1, plan.Staging, 0, 0)
	first.Version, first.Claimed = 1, noon
	if err := book.Save(t.Context(), append(rows, first)); err != nil {
		t.Fatal(err)
	}
	status := func(args ...string) string {
		t.Helper()
		out, err := command(t, append([]string{"status", "--config", r.config}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	u := pulse{Host: "login1", Process: 12, Started: noon.Add(-5 * time.Hour), At: noon.Add(-time.Second), path: r.where + ".status.json"}
	u.Slurm = "observe: slurm_load_jobs error: Unable to contact slurm controller"
	u.SlurmSince, u.SlurmNext = noon.Add(-time.Minute), noon.Add(time.Minute)
	u.Server = map[string]string{"cpu": "POST /workers: connection refused"}
	u.write()
	var s stock
	if err := json.Unmarshal([]byte(status("--json")), &s); err != nil {
		t.Fatal(err)
	}
	free := s.Disk
	if free.Free <= 0 || free.Total < free.Free || free.Files < free.FreeFiles || !s.Running || s.Oldest == nil || s.Oldest.Bundle != bundleNo(5) || s.Last.Process != 12 {
		t.Errorf("in JSON: %+v", s)
	}
	said := strings.NewReplacer(r.where, "LEDGER", r.id, "b1b2b3", string(layout), "SHARED").Replace(status())
	first4 := strings.SplitN(said, "\n", 4)
	if !strings.HasPrefix(first4[2], "The shared disk at SHARED has ") {
		t.Errorf("it says %q of the disk", first4[2])
	}
	want := `Bridge b1b2b3 runs on login1, since ` + clock(noon.Add(-5*time.Hour)) + `.
The ledger is LEDGER.
` + first4[2] + `

! Slurm has not been seen as a whole since the bridge started: until then nothing is submitted, cancelled or removed.
! Slurm has not answered since ` + clock(noon.Add(-time.Minute)) + `, and is asked again at ` + clock(noon.Add(time.Minute)) + `: observe: slurm_load_jobs error: Unable to contact slurm controller. Until then nothing is submitted or cancelled.
! The server does not take the check-ins of queue cpu: POST /workers: connection refused.
! 1 bundle is in submitting tried again: Slurm does not take the job now: too many jobs.

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
	u.write()
	for _, want := range []string{
		"! No bridge runs on this ledger. The last one ended at " + clock(noon) + ": the ledger is older than Slurm's jobs.\n",
		"does not run.\n",
	} {
		if got := status(); !strings.Contains(got, want) {
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
	if got := status(); !strings.Contains(got, "! No bundle is claimed, and no inputs are brought in: the site's disk has ") {
		t.Errorf("below the low water it says\n%s", got)
	}
	if err := os.RemoveAll(string(layout)); err != nil {
		t.Fatal(err)
	}
	if got := status(); !strings.Contains(got, "! The shared disk is not there: ") {
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
