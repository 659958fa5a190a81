package ledger_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

func open(t *testing.T, path string) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func row(bundle string) plan.Row {
	now := time.Unix(1_800_000_000, 0).UTC()
	code := 3
	return plan.Row{
		Bundle: bundle, Queue: "gpu", Claimed: now, Phase: plan.Running, Since: now, Reason: "the attempt began",
		Run:       &codalab.RunBundle{UUID: bundle, Command: "true", Metadata: codalab.Metadata{"name": "n"}},
		Resources: codalab.Resources{CPUs: 2, Memory: 1 << 31},
		Staged:    &spool.Inputs{Image: "/s/x.sif", ImageDigest: "sha256:1"},
		Attempt:   1, Mark: "cl-a-1.1-b", Submitted: now,
		Job:   sbatch.Job{ID: 7, State: sbatch.StateRunning},
		Begun: &spool.Started{Token: "t", Node: "n1", At: now},
		Exit:  &spool.Exit{Token: "t", ExitCode: &code},
	}
}

func TestSavedRowsComeBackAsTheyWereAfterRestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := open(t, path)
	rows := []plan.Row{row("0x1"), row("0x2")}
	if err := l.Save(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	rows[0].Phase = plan.Collecting
	if err := l.Save(t.Context(), rows[:1]); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, path)
	got, err := again.Rows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rows, got); diff != "" {
		t.Errorf("rows after restart (-saved +read):\n%s", diff)
	}
	if again.ID != l.ID || len(l.ID) != 6 {
		t.Errorf("id %q after restart, want %q of six digits", again.ID, l.ID)
	}
}

func TestSecondWriterOfARowIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	one, two := open(t, path), open(t, path)
	rows := []plan.Row{row("0x1")}
	if err := one.Save(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	for name, stale := range map[string]plan.Row{"old version": rows[0], "new again": row("0x1")} {
		if name == "old version" {
			if err := one.Save(t.Context(), rows); err != nil {
				t.Fatal(err)
			}
		}
		// The fresh row beside the stale one must not be written either.
		if err := two.Save(t.Context(), []plan.Row{row("0x9"), stale}); !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("%s: save = %v, want ErrConflict", name, err)
		}
	}
	if err := two.Delete(t.Context(), row("0x1")); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("delete of a stale row = %v, want ErrConflict", err)
	}
	got, err := two.Rows(t.Context())
	if err != nil || len(got) != 1 {
		t.Fatalf("rows = %v, %v; want the one", got, err)
	}
	if err := two.Delete(t.Context(), got[0]); err != nil {
		t.Error(err)
	}
}
