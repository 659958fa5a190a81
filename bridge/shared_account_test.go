package bridge

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// sacct is an accounting database with one answer, that notes the last question.
type sacct struct {
	sbatch.Scheduler

	jobs  []sbatch.Job
	which sbatch.Which
}

func (s *sacct) QueryAccounting(_ context.Context, _ time.Time, which sbatch.Which) ([]sbatch.Job, error) {
	s.which = which
	return s.jobs, nil
}

// accounted asks the database about rows, and returns the ids of the jobs that each row is told of.
func (s *sacct) accounted(t *testing.T, rows ...*plan.Row) (told [][]string) {
	t.Helper()
	d := doer{scheduler: s, now: func() time.Time { return time.Unix(100, 0) }, log: slog.New(slog.DiscardHandler)}
	of := d.queryAccounting(t.Context(), rows)
	for _, r := range rows {
		var n plan.News
		of(r)(&n)
		var ids []string
		for _, j := range n.Accounting.Jobs {
			ids = append(ids, j.ID.String())
		}
		told = append(told, ids)
	}
	return told
}

// accountRow is a row with a submission of this name, and with a job if it is not 0.
func accountRow(name plan.SubmissionName, job sbatch.JobID) *plan.Row {
	return &plan.Row{Attempt: plan.Attempt{Number: 1, SubmissionName: name, SubmittedAt: time.Unix(50, 0), Job: sbatch.Job{ID: job}}}
}

// memberRow is a row that shares its submission.
func memberRow(name plan.SubmissionName, index int, job sbatch.JobID) *plan.Row {
	r := accountRow(name, job)
	r.Shared, r.Index = true, index
	return r
}

func TestAccountingTellsARowOfItsOwnTask(t *testing.T) {
	t.Parallel()
	const array, other = sbatch.JobID(7), sbatch.JobID(9)
	s := &sacct{jobs: []sbatch.Job{
		{ID: array.Task(0), Name: "many", State: sbatch.StateCompleted},
		{ID: array.Task(1), Name: "many", State: sbatch.StateRequeued},
		{ID: array.Task(1), Name: "many", State: sbatch.StateRunning}, // a requeued job has a record for each start
		{ID: 5, Name: "renamed", State: sbatch.StateCompleted},
		{ID: 6, Name: "single", State: sbatch.StateFailed},
		{ID: 8, Name: "single", State: sbatch.StateRunning},
		{ID: other.Task(1), Name: "many", State: sbatch.StatePending}, // of a repeat of the same submission
		{ID: sbatch.JobID(10).Task(2), Name: "renamed too", State: sbatch.StateCompleted},
	}}
	told := s.accounted(t,
		memberRow("many", 0, array.Task(0)), memberRow("many", 1, array.Task(1)), memberRow("many", 1, 0), memberRow("many", 3, 0), memberRow("many", 3, array.Task(3)),
		memberRow("gone", 2, sbatch.JobID(10).Task(2)), accountRow("single", 8), accountRow("single", 0), accountRow("other", 5), accountRow("nothing", 0),
	)
	want := [][]string{{"7_0"}, {"7_1", "7_1", "9_1"}, {"7_1", "7_1", "9_1"}, {"7_1"}, nil, {"10_2"}, {"6", "8"}, {"6", "8"}, {"5"}, nil}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("jobs that the rows are told of (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"many", "gone", "single", "other", "nothing"}, s.which.Names); d != "" {
		t.Errorf("names of the question (-want +got):\n%s", d)
	}
}

// The rows of an array are told of as many jobs as there are, and not each of all jobs with the array's name.
func TestAccountingOfAnArrayCostsAJobForEachRow(t *testing.T) {
	t.Parallel()
	const tasks = 1000
	s := &sacct{}
	var rows []*plan.Row
	for i := range tasks {
		s.jobs = append(s.jobs, sbatch.Job{ID: sbatch.JobID(7).Task(i), Name: "many", State: sbatch.StateCompleted})
		rows = append(rows, memberRow("many", i, 0))
	}
	jobs := 0
	for _, ids := range s.accounted(t, rows...) {
		jobs += len(ids)
	}
	if jobs != tasks {
		t.Errorf("%d rows are told of %d jobs", tasks, jobs)
	}
}

// A submission that was repeated may have made two arrays, so the accounting database is asked for its name, too.
func TestRepeatedArrayIsLookedForByItsName(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 2)...)
	a.answer = unclear
	a.pass(2 * time.Minute)
	if len(a.submitted) != 2 {
		t.Fatalf("%d submissions", len(a.submitted))
	}
	a.show(a.submitted[1], 8)
	a.pass(2 * time.Second)
	r := a.row(1)
	a.want("job", r.Job.ID.String(), "8_1")
	asked := &sacct{}
	asked.accounted(t, r)
	a.want("names that are asked for", asked.which.Names, []string{string(r.SubmissionName)})
}
