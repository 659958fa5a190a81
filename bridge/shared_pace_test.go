package bridge

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// tasks are the ids of tasks of an array.
func tasks(array sbatch.JobID, n int) []sbatch.JobID {
	ids := make([]sbatch.JobID, n)
	for i := range ids {
		ids[i] = array.Task(i)
	}
	return ids
}

// scancel costs the controller one request for all tasks of an array.
func TestOneCancellationIsForAllTasksOfItsArrays(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	alternating := []sbatch.JobID{1}
	for i := range 20 {
		alternating = append(alternating, sbatch.JobID(2).Task(i), sbatch.JobID(3).Task(i), sbatch.JobID(4).Task(i), sbatch.JobID(10+i))
	}
	for name, c := range map[string]struct {
		ids     []sbatch.JobID
		bounded bool
		want    int
	}{
		"one array":             {tasks(7, 250), true, 250},
		"an array and jobs":     {append(tasks(7, 250), 1, 2, 3, 4), true, 252},
		"four arrays and jobs":  {alternating, true, 41},
		"without a bound":       {append(tasks(7, 250), tasks(8, 250)...), false, 500},
		"jobs without a bound":  {alternating, false, 81},
		"more than one command": {tasks(7, mostTasksInOneCall+1), true, mostTasksInOneCall},
	} {
		b := opened(t)
		jobs := b.decider.jobs
		jobs.observed, jobs.asked, jobs.submitted, b.decider.pace.bounded = true, now, map[sbatch.JobID]time.Time{}, c.bounded
		var wanted []plan.Effect
		for _, id := range c.ids {
			jobs.submitted[id] = now
			e := plan.Effect{Kind: plan.Cancel, Row: &plan.Row{Bundle: id.String(), Attempt: plan.Attempt{Job: sbatch.Job{ID: id, Submitted: now}}}}
			b.decider.starter.active.begin(e)
			wanted = append(wanted, e)
		}
		started := b.decider.starter.startNow(now, wanted)
		if len(started) != 1 || len(started[0].Rows()) != c.want || len(b.decider.starter.held) != len(wanted)-c.want {
			t.Errorf("%s: %d commands, the first for %d jobs, and %d are held", name, len(started), len(started[0].Rows()), len(b.decider.starter.held))
		}
	}
}
