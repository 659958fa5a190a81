package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func TestStampIsReadFromWhatRequestWrites(t *testing.T) {
	t.Parallel()
	r := rowIn(plan.Submitting)
	r.Attempt.Number, r.OnDisk, r.Generation = 3, "3-b1b2b3", 42
	got, ok := plan.StampOf(sbatch.Job{Comment: policy().Request(r).Comment})
	want := plan.Stamp{Bundle: uuid, Attempt: 3, Bridge: "b1b2b3", Generation: 42, OnDisk: "3-b1b2b3", Identity: r.Run.Identity().Digest()}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("stamp %v (-want +got):\n%s", ok, diff)
	}
	of, ok := plan.StampOf(sbatch.Job{Comment: "codalab bundle=0x1 attempt=2 owner=1 bridge=b1b2b3 generation=1"})
	if of.OnDisk != "2-b1b2b3" || !ok {
		t.Errorf("a job whose comment was cut short has its files in %q, %v", of.OnDisk, ok)
	}
	for _, comment := range []string{
		"", "charge=1234", "see codalab bundle=0x1 attempt=1 bridge=b1b2b3 generation=1",
		"codalab bundle=0x1 attempt=1 owner=1 bridge=b1b2b3", "codalab attempt=1 bridge=b1b2b3 generation=1",
		"codalab bundle=0x1 attempt=one bridge=b1b2b3 generation=1", "codalab bundle=0x1 attempt=1 generation=1",
	} {
		if got, ok := plan.StampOf(sbatch.Job{Comment: comment}); ok {
			t.Errorf("comment %q has the stamp %+v", comment, got)
		}
	}
}
