package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Operators see a job in squeue, and researchers tell the name of their bundle.
func TestBundleIsFoundByItsJobsAndByItsName(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, place func(testing.TB) string) {
		l := open(t, place(t))
		noon := time.Unix(1_800_000_000, 0).UTC()
		save := func(r plan.Row) plan.Row {
			t.Helper()
			rows := []plan.Row{r}
			if err := l.Save(t.Context(), rows); err != nil {
				t.Fatal(err)
			}
			return rows[0]
		}
		made := func(n int, name string, job sbatch.JobID) plan.Row {
			r := plan.NewRow(noon.Add(time.Duration(n)*time.Minute), "cpu", codalab.Message{Bundle: &codalab.RunBundle{
				UUID: fmt.Sprintf("0x%032d", n), Metadata: codalab.Metadata{"name": name, "description": "not kept"},
			}})
			r.Job = sbatch.Job{ID: job}
			return r
		}
		retried := made(1, "train", 4711)
		retried.Reason = "first"
		retried = save(retried)
		retried.Job.ID, retried.Reason = 4712, "second"
		save(retried)
		save(made(2, "train", 4713))
		save(made(3, "eval", 4713)) // Slurm has begun to count again
		forgotten := save(made(4, "gone", 4714))
		if err := l.Delete(t.Context(), forgotten); err != nil {
			t.Fatal(err)
		}
		uuid := func(n int) string { return fmt.Sprintf("0x%032d", n) }
		for job, want := range map[sbatch.JobID][]string{
			4711: {uuid(1)}, 4712: {uuid(1)}, 4713: {uuid(2), uuid(3)}, 4714: {uuid(4)}, 4715: nil,
		} {
			got, err := l.BundlesOfJob(t.Context(), job, 4)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("job %s (-want +got):\n%s", job, diff)
			}
		}
		if got, err := l.BundlesOfJob(t.Context(), 4713, 1); err != nil || len(got) != 1 {
			t.Errorf("at most one bundle: %v, %v", got, err)
		}
		for name, want := range map[string][]string{"train": {uuid(2), uuid(1)}, "eval": {uuid(3)}, "gone": nil, "tr": nil} {
			rows, err := l.RowsNamed(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range rows {
				got = append(got, r.Bundle)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("name %s (-want +got):\n%s", name, diff)
			}
		}
	})
}
