package recovery

import (
	"slices"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// The comment of a pack names no task: the rows of its generation know it, if they are in a pack.
func TestPackThatTheLedgerKnowsIsNoStray(t *testing.T) {
	t.Parallel()
	pack := func(id sbatch.JobID, generation string) sbatch.Job {
		return sbatch.Job{ID: id, Name: "cl-x", State: sbatch.StatePending, Comment: "codalab pack=2 owner=1 bridge=b1b2b3 generation=" + generation}
	}
	snapshot := sbatch.Snapshot{Jobs: []sbatch.Job{pack(7, "3"), pack(8, "2"), pack(9, "1")}}
	shares := func(generation int64, index int, inPack bool) plan.Row {
		return plan.Row{Attempt: plan.Attempt{Generation: generation, Shared: true, Index: index, Pack: inPack}}
	}
	rows := []plan.Row{shares(3, 0, true), shares(3, 1, true), shares(2, 0, false)}
	f := Findings{Bridge: "b1b2b3", Generation: 4}
	f.addJobs(plan.Policy{CancelOrphans: true}, snapshot, func(string) *plan.Row { return nil }, tasksOf(rows))
	var unknown []sbatch.JobID
	for _, j := range f.Jobs {
		unknown = append(unknown, j.Job)
	}
	if want := []sbatch.JobID{9, 8}; !slices.Equal(unknown, want) { // generation 2 is an array to the ledger
		t.Errorf("the ledger does not know %v, want %v", unknown, want)
	}
}
