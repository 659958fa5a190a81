package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// littered is a site with a shared directory on which are the files of bundle 1,
// which has a row, of bundle 2, which has a job, and of bundle 3, which nothing
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
		name := fmt.Sprintf("cl-ann-%s.1-%s", bundleNo(n)[2:14], r.id)
		spec := spool.Spec{Bundle: bundleNo(n), Attempt: 1, SubmissionName: name, RunDir: layout.RunDir(bundleNo(n), "1-b1")}
		err = errors.Join(err, spool.Disk{Layout: layout}.Prepare("1-b1", spec))
	}
	if err != nil {
		t.Fatal(err)
	}
	r.submits(t, 2, 1, 4, sbatch.StatePending)
	return r, layout
}

// lockLedger takes a ledger as a bridge that runs does, until the test ends.
func lockLedger(t *testing.T, where string) *ledger.Ledger {
	t.Helper()
	book, release, err := assembly.TakeLedger(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return book
}

// Files cannot be made old here, so this test only has young ones. Package sharedfiles
// tests the sweep of old ones.
func TestSweepLeavesWhatIsYoung(t *testing.T) {
	t.Parallel()
	r, layout := littered(t)
	lockLedger(t, r.where) // beside a bridge
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
		if _, err := layout.Attempt(bundleNo(n), "1-b1").ReadSpec(); err != nil {
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
	say := func(args ...string) string {
		t.Helper()
		out, err := command(t, append([]string{"sweep", "--config", r.config}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := say("-n"); !strings.Contains(out, "would go") || !strings.Contains(out, "gets it back") || !strings.Contains(out, "\n2 leftovers, ") {
		t.Errorf("the dry run says\n%s", out)
	}
	var found struct {
		DryRun   bool                  `json:"dry_run"`
		Findings []sharedfiles.Finding `json:"findings"`
	}
	if err := json.Unmarshal([]byte(say("--json")), &found); err != nil || found.DryRun || len(found.Findings) != 6 {
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
	if removed != 2 || kept != 4 {
		t.Errorf("%d were removed and %d kept of %+v", removed, kept, found.Findings)
	}
	for n, want := range map[int]error{1: nil, 2: nil, 3: spool.ErrNone} {
		if _, err := layout.Attempt(bundleNo(n), "1-b1").ReadSpec(); !errors.Is(err, want) {
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
	if _, err := layout.Attempt(bundleNo(3), "1-b1").ReadSpec(); err != nil {
		t.Error(err)
	}
}

func TestSweepThatCouldNotRemoveFails(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := &site{Process: program.Process{Stdout: &out}}
	err := reportSweep(s, false, []sharedfiles.Finding{{Removed: true}, {Trouble: "permission denied"}})
	if err == nil || err.Error() != "1 of 2 leftovers could not be removed" || !strings.Contains(out.String(), "permission denied") {
		t.Errorf("%v:\n%s", err, &out)
	}
}

func TestSweepNeedsALedgerAndSlurm(t *testing.T) {
	t.Parallel()
	r, _ := littered(t)
	_, err := command(t, "sweep", "--config", r.config, "--ledger", filepath.Join(t.TempDir(), "none.db"))
	if err == nil || !strings.Contains(err.Error(), "only a ledger shows which files are unneeded") {
		t.Errorf("without a ledger: %v", err)
	}
	r.slurm.stop(t)
	_, err = command(t, "sweep", "--config", r.config)
	var coded *program.Error
	if !errors.As(err, &coded) || coded.Code != program.ExitTransient {
		t.Errorf("without Slurm: %v", err)
	}
}
