package bridge

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// teller is a bridge whose check-ins a test makes by hand.
type teller struct {
	*testing.T
	*Bridge

	queue plan.Queue
	now   time.Time
}

func newTeller(t *testing.T) *teller {
	t.Helper()
	r := &teller{T: t, queue: plan.Queue{Name: "cpu"}, now: time.Unix(1_800_000_000, 0)}
	r.Bridge = &Bridge{Name: "b", Now: func() time.Time { return r.now }}
	r.view.init()
	r.inbox.init()
	return r
}

// checkIn makes a check-in, and fails unless it reports these runs in these
// states. It returns the check-in's number.
func (r *teller) checkIn(want ...string) int64 {
	r.Helper()
	in, number := r.CheckIn(r.queue)
	var got []string
	for _, run := range in.Runs {
		got = append(got, run.UUID+" "+string(run.State))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.Errorf("check-in %d (-want +got):\n%s", number, diff)
	}
	return number
}

// signals returns which channels had a token.
func (r *teller) signals() (urgent, other bool) {
	u, o := r.Changes(r.queue)
	select {
	case <-u:
		urgent = true
	default:
	}
	select {
	case <-o:
		other = true
	default:
	}
	return urgent, other
}

func cpuRow(bundle string, phase plan.Phase) plan.Row {
	return plan.Row{Bundle: bundle, Queue: "cpu", Phase: phase, Run: &codalab.RunBundle{}}
}

func TestRunIsReportedWhenThereIsNewsOfIt(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	row := cpuRow("0x1", plan.Staging)
	show(r.Bridge, row)
	show(r.Bridge, plan.Row{Bundle: "0x2", Queue: "gpu", Phase: plan.Running})
	if urgent, _ := r.signals(); !urgent {
		t.Error("a new run is not urgent")
	}
	r.Answered(r.queue, r.checkIn("0x1 preparing"), nil)
	r.Answered(r.queue, r.checkIn(), nil)

	row.Progress = "Pulling the image."
	show(r.Bridge, row)
	if urgent, other := r.signals(); urgent || !other {
		t.Errorf("new words: urgent %t, other %t", urgent, other)
	}
	r.Answered(r.queue, r.checkIn("0x1 preparing"), nil)

	row.Phase = plan.Running
	show(r.Bridge, row)
	if urgent, _ := r.signals(); !urgent {
		t.Error("a new state is not urgent")
	}
	r.Answered(r.queue, r.checkIn("0x1 running"), nil)

	row.Status = &spool.Status{At: r.now.Add(7 * time.Second), CommandStarted: r.now}
	show(r.Bridge, row)
	if urgent, other := r.signals(); urgent || other {
		t.Errorf("usage: urgent %t, other %t", urgent, other)
	}
	r.Answered(r.queue, r.checkIn(), nil)
	r.now = r.now.Add(refreshEvery)
	r.Answered(r.queue, r.checkIn("0x1 running"), nil)
}

// An acknowledged run is in no check-in either before a step has taken the
// acknowledgement in, or while a step that began earlier is at work.
func TestAcknowledgedRunIsInNoLaterCheckIn(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	row := cpuRow("0x1", plan.Finalizing)
	row.ReportCount = 1
	show(r.Bridge, row)
	number := r.checkIn("0x1 finalizing")
	before := r.inbox.drain() // a step takes this, and is at work
	r.Answered(r.queue, number, []codalab.Message{{Type: codalab.MessageMarkFinalized, UUID: "0x1"}})
	row.ReportCount = 2 // that step decides older news
	show(r.Bridge, row)
	r.view.decided(&before)
	r.checkIn()
	in := r.inbox.drain()
	row.Phase = plan.Done
	show(r.Bridge, row)
	r.view.decided(&in)
	r.checkIn()
	if len(r.view.acknowledged) != 0 {
		t.Errorf("%v is still to be decided", r.view.acknowledged)
	}
	row.Phase, row.ReportCount = plan.Finalizing, 3
	show(r.Bridge, row)
	r.checkIn("0x1 finalizing")
}

func TestVerdictIsReportedOnce(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	row := cpuRow("0x1", plan.Finalizing)
	row.ReportCount = 1
	show(r.Bridge, row)
	r.Answered(r.queue, r.checkIn("0x1 finalizing"), nil)
	row.LastFailure = "the server does not answer"
	show(r.Bridge, row)
	r.now = r.now.Add(time.Hour)
	number := r.checkIn()
	row.ReportCount = 2
	show(r.Bridge, row)
	r.Answered(r.queue, number, nil)
	number = r.checkIn("0x1 finalizing")
	r.inbox.drain()

	r.Unanswered(r.queue, number, errors.New("connection reset"))
	if in := r.inbox.drain(); len(in.news) != 1 || !in.news[0].Unanswered {
		t.Errorf("news of a verdict whose check-in failed: %+v", in.news)
	}
	r.checkIn()
}

func TestVerdictOfAnEarlierLifeIsNotReportedBeforeTheServerIsAsked(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	ended, running := cpuRow("0x1", plan.Finalizing), cpuRow("0x2", plan.Running)
	ended.ReportCount = 1
	r.resume(&ended)
	r.resume(&running)
	r.Answered(r.queue, r.checkIn("0x2 running"), nil)
	again := ended
	again.ReportCount = 2
	show(r.Bridge, again)
	r.checkIn("0x1 finalizing")
}

func TestRunIsInOneWaitingCheckInAtATime(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	one, two := cpuRow("0x1", plan.Running), cpuRow("0x2", plan.Staging)
	show(r.Bridge, one)
	first := r.checkIn("0x1 running")
	one.Phase, one.ReportCount = plan.Finalizing, 1
	show(r.Bridge, one)
	show(r.Bridge, two)
	second := r.checkIn("0x2 preparing")
	if below, blocked := r.view.pending("cpu", r.now); below != 0 || !blocked {
		t.Errorf("something can be reported: %d; something waits: %t", below, blocked)
	}
	r.Answered(r.queue, second, nil)
	r.checkIn()
	r.Answered(r.queue, first, nil)
	r.checkIn("0x1 finalizing")
}

func TestReportOfACheckInThatFailedIsRepeated(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	show(r.Bridge, cpuRow("0x1", plan.Running))
	first := r.checkIn("0x1 running")
	r.checkIn()
	r.Unanswered(r.queue, first, errors.New("connection reset"))
	r.checkIn("0x1 running")
}

func TestCheckInHasTheGroupOfItsQueueAndASharedDisk(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	if in, _ := r.CheckIn(r.queue); in.GroupName != nil || in.SharedFileSystem {
		t.Errorf("group %v, shared disk %t; want neither", in.GroupName, in.SharedFileSystem)
	}
	r.queue.Group, r.SharedDisk = "lab", true
	if in, _ := r.CheckIn(r.queue); in.GroupName == nil || *in.GroupName != "lab" || !in.SharedFileSystem {
		t.Errorf("group %v, shared disk %t; want both", in.GroupName, in.SharedFileSystem)
	}
}
