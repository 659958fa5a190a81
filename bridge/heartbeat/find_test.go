package heartbeat

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func TestAllBundlesOfAPackAreNamed(t *testing.T) {
	t.Parallel()
	where := filepath.Join(t.TempDir(), "ledger.db")
	book, err := ledger.Open(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer book.Close()
	const n = 40
	rows := make([]plan.Row, n)
	for i := range rows {
		rows[i] = plan.Row{Bundle: fmt.Sprintf("0x%032x", i), Queue: "cpu", Phase: plan.Queued, Run: &codalab.RunBundle{}, Attempt: plan.Attempt{Number: 1, Job: sbatch.Job{ID: 100}}}
	}
	if err := book.Save(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	reader, err := ledger.OpenToRead(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	_, err = FindBundle(t.Context(), reader, "l", "100")
	var ambiguous *AmbiguousError
	if !errors.As(err, &ambiguous) || !strings.HasPrefix(err.Error(), "job 100 is of 40 bundles, which share it, ") || strings.Count(err.Error(), "0x") != n {
		t.Errorf("%v", err)
	}
}
