package bridge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// lookAround does what a step wants, with a disk that has no records and an accounting database that has none of the tasks.
func (a *arrays) lookAround(e plan.Effect) {
	switch e.Kind {
	case plan.ReadRecords:
		rec := plan.Records{Attempt: e.Row.Attempt.Number, Read: a.now, Records: spool.Records{}}
		a.b.inbox.putEnded(e, func(*plan.Row) func(*plan.News) { return func(n *plan.News) { n.AddRecords(rec) } })
	case plan.QueryAccounting:
		a.b.inbox.putEnded(e, func(r *plan.Row) func(*plan.News) {
			o := plan.Observation{SubmissionName: r.SubmissionName, Job: r.Job.ID, Asked: a.now}
			return func(n *plan.News) { n.Accounting = &o }
		})
	default:
		a.do(e)
	}
}

// A waiting task that somebody cancels leaves squeue at once, and has no record in the accounting database either.
func TestWaitingTaskThatSomebodyCancelsIsCancelled(t *testing.T) {
	t.Parallel()
	for _, accounting := range []bool{false, true} {
		a := newArrays(t, several("1", 0, 4)...)
		a.b.decider.rules.Accounting = accounting
		pass := func(d time.Duration) { a.passWith(d, a.lookAround) }
		pass(2 * time.Second)
		a.show(a.submitted[0], 100)
		pass(2 * time.Minute)
		a.jobs = append(a.jobs[:1:1], a.jobs[2:]...) // scancel 100_1
		pass(8 * time.Minute)
		r := a.row(1)
		if len(a.submitted) > 1 || r.Verdict == nil || r.Verdict.Cause != spool.CauseUser || !strings.Contains(r.Verdict.Failure, "was cancelled outside CodaLab") {
			t.Errorf("accounting %v: %v submissions, row %s at attempt %d (%s): %+v", accounting, len(a.submitted), r.Phase, r.Attempt.Number, r.Reason, r.Verdict)
		}
		a.want("the others", []plan.Phase{a.row(0).Phase, a.row(2).Phase, a.row(3).Phase}, all(3, plan.Queued))
	}
}

// A controller that has lost its state gives out the numbers of arrays again: an array of that number shows nothing of the lost one's tasks.
func TestAnotherArrayOfTheNumberIsNoWitnessOfACancellation(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.pass(2 * time.Second)
	a.show(a.submitted[0], 100)
	a.pass(time.Minute)
	later := slices.Clone(a.jobs[:1])
	later[0].Name, later[0].Comment, later[0].Submitted = "another", "", a.now.Truncate(time.Second)
	a.jobs = later
	a.pass(2 * time.Second)
	for i := range 3 {
		if r := a.row(i); r.Job.State == sbatch.StateCancelled {
			t.Errorf("row %d: %s", i, r.Reason)
		}
	}
}

// While the bridge was down the task may have begun, ended and been forgotten by the controller.
func TestTaskThatIsMissingAfterARestartIsNotCalledCancelled(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.pass(2 * time.Second)
	a.show(a.submitted[0], 100)
	a.pass(time.Minute)
	if r := a.row(1); r.Job.Submitted.IsZero() {
		t.Fatalf("row 1 does not know its task: %+v", r.Job)
	}
	a.jobs = append(a.jobs[:1:1], a.jobs[2:]...)
	a.now = a.now.Add(10 * time.Minute)
	a.start()
	a.pass(2 * time.Second)
	if r := a.row(1); r.NoJobSince.IsZero() || r.Job.State == sbatch.StateCancelled {
		t.Errorf("row 1 has a job since %v, %s: %s", r.NoJobSince, r.Job.State, r.Reason)
	}
}
