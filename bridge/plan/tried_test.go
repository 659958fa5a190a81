package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestReportNamesTheNodeAndTheJobOfEachAttempt(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Queued), func(r *plan.Row) { r.Tried = "n9 (Slurm job 3)" })
	want := []string{"n9 (Slurm job 3)", "Slurm job 7"}
	if got := b.row.Report("w").Attempts; !slices.Equal(got, want) {
		t.Errorf("while the job waits: %q, want %q", got, want)
	}
	ended := job(sbatch.StateNodeFail)
	b.at(time.Minute).decide(seen(time.Minute, ended))
	b.at(2 * time.Minute).decide(read(2*time.Minute, nil, nil))
	b.decide(fencing(spool.Started{Fenced: true, Token: "ours"}))
	if b.row.Phase != plan.Staging {
		t.Fatalf("phase %s (%s)", b.row.Phase, b.row.Reason)
	}
	want[1] = "n1 (Slurm job 7)"
	if got := b.row.Tried; got != strings.Join(want, ", ") {
		t.Errorf("after the attempt: %q, want %q", got, want)
	}
	if got := b.row.Report("w").Attempts; len(got) != 0 {
		t.Errorf("without a job: %q", got)
	}
}
