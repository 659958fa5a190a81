package report

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// teller is a book whose check-ins a test makes by hand, for one queue.
type teller struct {
	*testing.T
	*Book

	now time.Time
}

func newTeller(t *testing.T) *teller {
	t.Helper()
	return &teller{T: t, Book: NewBook(), now: time.Unix(1_800_000_000, 0)}
}

// show notes a copy of a row.
func (r *teller) show(row plan.Row) Urgency { return r.Note(&row) }

// checkIn makes a check-in, and fails unless it reports these runs in these
// states. It returns the check-in's number.
func (r *teller) checkIn(want ...string) int64 {
	r.Helper()
	in := r.CheckIn("cpu", "b-cpu", r.now)
	var got []string
	for _, run := range in.Reports {
		got = append(got, run.UUID+" "+string(run.State))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.Errorf("check-in %d (-want +got):\n%s", in.Number, diff)
	}
	return in.Number
}

// answered notes the answer to a check-in.
func (r *teller) answered(number int64) { r.Applied("cpu", number, r.now) }

func cpuRow(bundle string, phase plan.Phase) plan.Row {
	r := plan.Row{Bundle: bundle, Queue: "cpu", Phase: phase, Run: &codalab.RunBundle{}}
	r.CommandBegan = phase == plan.Running
	return r
}

func TestRunIsReportedWhenThereIsNewsOfIt(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	row := cpuRow("0x1", plan.Staging)
	if how := r.show(row); how != Urgent {
		t.Errorf("a new run has urgency %d", how)
	}
	r.show(plan.Row{Bundle: "0x2", Queue: "gpu", Phase: plan.Running})
	r.answered(r.checkIn("0x1 preparing"))
	r.answered(r.checkIn())

	row.Progress = "Pulling the image."
	if how := r.show(row); how != Words {
		t.Errorf("new words have urgency %d", how)
	}
	r.answered(r.checkIn("0x1 preparing"))

	row.Phase, row.CommandBegan = plan.Running, true
	if how := r.show(row); how != Urgent {
		t.Errorf("a new state has urgency %d", how)
	}
	r.answered(r.checkIn("0x1 running"))

	row.Status = &spool.Status{At: r.now.Add(7 * time.Second), CommandStarted: r.now}
	if how := r.show(row); how != None {
		t.Errorf("usage has urgency %d", how)
	}
	r.answered(r.checkIn())
	r.now = r.now.Add(RefreshEvery)
	r.answered(r.checkIn("0x1 running"))
}

// An acknowledged run is in no check-in either before a step has taken the
// acknowledgement in, or while a step that began earlier is at work.
func TestAcknowledgedRunIsInNoLaterCheckIn(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	row := cpuRow("0x1", plan.Finalizing)
	row.ReportCount = 1
	r.show(row)
	number := r.checkIn("0x1 finalizing")
	messages := []codalab.Message{{Type: codalab.MessageMarkFinalized, UUID: "0x1"}}
	r.Acknowledge(messages)
	r.answered(number)
	row.ReportCount = 2 // a step that has not read the acknowledgement decides older news
	r.show(row)
	r.Settle("0x1", nil)
	r.checkIn()
	row.Phase = plan.Done
	r.show(row)
	r.Settle("0x1", messages)
	r.checkIn()
	if len(r.acknowledged) != 0 {
		t.Errorf("%v is still to be decided", r.acknowledged)
	}
	row.Phase, row.ReportCount = plan.Finalizing, 3
	r.show(row)
	r.checkIn("0x1 finalizing")
}

func TestVerdictIsReportedOnce(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	row := cpuRow("0x1", plan.Finalizing)
	row.ReportCount = 1
	r.show(row)
	r.answered(r.checkIn("0x1 finalizing"))
	row.LastFailure = "the server does not answer"
	r.show(row)
	r.now = r.now.Add(time.Hour)
	number := r.checkIn()
	row.ReportCount = 2
	r.show(row)
	r.answered(number)
	number = r.checkIn("0x1 finalizing")

	if verdicts := r.Doubt("cpu", number, r.now); !slices.Equal(verdicts, []string{"0x1"}) {
		t.Errorf("the verdicts of a check-in that failed: %v", verdicts)
	}
	r.checkIn()
}

func TestVerdictOfAnEarlierLifeIsNotReportedBeforeTheServerIsAsked(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	ended, running := cpuRow("0x1", plan.Finalizing), cpuRow("0x2", plan.Running)
	ended.ReportCount = 1
	r.Resume(&ended)
	r.Resume(&running)
	r.answered(r.checkIn("0x2 running"))
	again := ended
	again.ReportCount = 2
	r.show(again)
	r.checkIn("0x1 finalizing")
}

func TestRunIsInOneWaitingCheckInAtATime(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	one, two := cpuRow("0x1", plan.Running), cpuRow("0x2", plan.Staging)
	r.show(one)
	first := r.checkIn("0x1 running")
	one.Phase, one.ReportCount = plan.Finalizing, 1
	r.show(one)
	r.show(two)
	second := r.checkIn("0x2 preparing")
	if most, blocked := r.Pending("cpu", r.now); most != None || !blocked {
		t.Errorf("something can be reported: %d; something waits: %t", most, blocked)
	}
	r.answered(second)
	r.checkIn()
	r.answered(first)
	r.checkIn("0x1 finalizing")
}

func TestReportOfACheckInThatFailedIsRepeated(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	r.show(cpuRow("0x1", plan.Running))
	first := r.checkIn("0x1 running")
	r.checkIn()
	r.Doubt("cpu", first, r.now)
	r.checkIn("0x1 running")
}

// A day's bundles end, and the book keeps nothing of those that their rows have left.
func TestNothingIsLeftOfAForgottenRun(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	row := cpuRow("0x1", plan.Running)
	r.show(row)
	r.answered(r.checkIn("0x1 running"))
	r.show(row)
	r.Forget(&row)
	if q := r.of("cpu"); len(q.runs)+len(q.unreported)+q.aging.Len()+len(q.unanswered) != 0 {
		t.Errorf("left: %d runs, %d unreported, %d that age, %d check-ins", len(q.runs), len(q.unreported), q.aging.Len(), len(q.unanswered))
	}
}
