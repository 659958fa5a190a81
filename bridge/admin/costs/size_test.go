package costs_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/admin/costs"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// BenchmarkReport reports a hundred thousand bundles that the ledger has forgotten, of which the accounting database knows
// each.
func BenchmarkReport(b *testing.B) {
	const bundles = 100_000
	l, err := ledger.Open(b.Context(), filepath.Join(b.TempDir(), "ledger.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	var known []sbatch.Charge
	rows := make([]plan.Row, 1000)
	for n := 0; n < bundles; n += len(rows) {
		for i := range rows {
			id := n + i + 1
			start := noon.Add(time.Duration(id) * time.Second)
			rows[i] = plan.Row{
				Bundle: fmt.Sprintf("0x%032x", id), Queue: "gpu", Phase: plan.Done, OfferedAt: start.Add(-time.Minute), DecidedAt: start,
				Run: &codalab.RunBundle{OwnerID: fmt.Sprintf("0xowner%d", id%50)}, Resources: codalab.Resources{CPUs: 4, GPUs: 1, Memory: 8 << 30},
				Attempt: plan.Attempt{
					Number: 1, Generation: int64(id), SubmittedAt: start.Add(-time.Minute), EndedAt: start.Add(time.Hour),
					Job: sbatch.Job{ID: sbatch.JobID(id)}, Begun: &spool.Started{Node: "node0417", At: start}, Exit: &spool.Exit{Cause: spool.CauseSucceeded},
				},
			}
			known = append(known, sbatch.Charge{ID: sbatch.JobID(id), Start: start, End: start.Add(time.Hour), Elapsed: time.Hour, CPUs: 4, GPUs: 1})
		}
		if err := l.Save(b.Context(), rows); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for b.Loop() {
		report := costs.NewBuilder(costs.ByUser, known, costs.Names{})
		err := l.EachCharge(b.Context(), noon, noon.Add(1000*time.Hour), func(c ledger.Charge) error {
			report.Add(c)
			return nil
		})
		if r := report.Report(); err != nil || r.Total.Bundles != bundles || r.Total.Unaccounted != 0 {
			b.Fatalf("%v: %+v", err, r.Total)
		}
	}
}
