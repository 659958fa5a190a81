package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
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
	r.Bridge = &Bridge{Config: Config{Name: "b", Now: func() time.Time { return r.now }}}
	r.assemble()
	r.board.init()
	return r
}

// newVerdictTeller is newTeller with a finished run 0x1, whose verdict is not yet reported, and a running 0x2.
func newVerdictTeller(t *testing.T) *teller {
	t.Helper()
	r := newTeller(t)
	finished := cpuRow("0x1", plan.Finalizing)
	finished.ReportCount = 1
	show(r.Bridge, finished)
	show(r.Bridge, cpuRow("0x2", plan.Running))
	return r
}

// checkIn makes a check-in, and fails unless it reports these runs in these
// states. It returns the check-in's number.
func (r *teller) checkIn(want ...string) int64 {
	r.Helper()
	in, number := r.CheckIn(r.queue)
	var got []string
	for _, run := range in.Reports {
		got = append(got, run.UUID+" "+string(run.State))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.Errorf("check-in %d (-want +got):\n%s", number, diff)
	}
	return number
}

// A queue whose runs share submissions asks for as many runs at once as one submission may have.
func TestQueueTellsHowManyRunsItSubmitsTogether(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	for _, test := range []struct {
		queue plan.Queue
		want  int64
	}{
		{plan.Queue{}, 0}, {plan.Queue{ArrayTasks: 1}, 0}, {plan.Queue{ArrayTasks: 200}, 200}, {plan.Queue{ArrayTasks: 200, PackRuns: 300}, 300},
	} {
		test.queue.Name = r.queue.Name
		if in, _ := r.CheckIn(test.queue); in.Together != test.want {
			t.Errorf("%+v: %d, want %d", test.queue, in.Together, test.want)
		}
	}
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
	r := plan.Row{Bundle: bundle, Queue: "cpu", Phase: phase, Run: &codalab.RunBundle{}}
	r.CommandBegan = phase == plan.Running
	return r
}

// Package report says how urgent news is.
func TestNewsWakesTheCheckInsOfItsQueue(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	wakes := func(when string, wantUrgent, wantOther bool) {
		t.Helper()
		if urgent, other := r.signals(); urgent != wantUrgent || other != wantOther {
			t.Errorf("%s: urgent %t, other %t; want %t, %t", when, urgent, other, wantUrgent, wantOther)
		}
	}
	show(r.Bridge, plan.Row{Bundle: "0x2", Queue: "gpu", Phase: plan.Running})
	wakes("a run of another queue", false, false)
	row := cpuRow("0x1", plan.Staging)
	show(r.Bridge, row)
	wakes("a new run", true, false)
	r.NoteAnswer(r.queue, r.checkIn("0x1 preparing"), nil)
	row.Progress = "Pulling the image."
	show(r.Bridge, row)
	wakes("new words", false, true)
	r.board.reports.hurry(false)
	wakes("news of the disk", true, false)
}

func TestFailedCheckInIsNewsForTheRowsOfItsVerdicts(t *testing.T) {
	t.Parallel()
	r := newVerdictTeller(t)
	number := r.checkIn("0x1 finalizing", "0x2 running")
	r.NoteUnanswered(r.queue, number, errors.New("connection reset"))
	if in := r.inbox.drain(); len(in.news) != 1 || !in.news[0].Unanswered {
		t.Errorf("news of a verdict whose check-in failed: %+v", in.news)
	}
}

// A server that refuses a check-in has not applied it: the bridge does not ask it for the bundles.
func TestRefusedCheckInIsNoNews(t *testing.T) {
	t.Parallel()
	r := newVerdictTeller(t)
	refusal := &codalab.Error{Status: http.StatusRequestEntityTooLarge}
	if !r.NoteUnanswered(r.queue, r.checkIn("0x1 finalizing", "0x2 running"), refusal) {
		t.Error("the next check-in is not smaller")
	}
	r.checkIn("0x1 finalizing")
	if r.NoteUnanswered(r.queue, r.checkIn("0x2 running"), refusal) {
		t.Error("there is no smaller check-in than one of a single run")
	}
	if in := r.inbox.drain(); len(in.news) != 0 {
		t.Errorf("news: %+v", in.news)
	}
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

// shows is a server that shows each bundle as standing has it.
type shows struct {
	BundleService

	standing map[string]codalab.Standing
}

func (s *shows) Standing(_ context.Context, bundle string) (codalab.Standing, error) {
	return s.standing[bundle], nil
}

func TestReportThatIsNeverProvenKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	service := &shows{standing: map[string]codalab.Standing{}}
	r.Service = service
	var first, then []string
	for n := range proofsAtOnce + 1 {
		row := cpuRow(fmt.Sprintf("0x%d", n), plan.Running)
		show(r.Bridge, row)
		first, then = append(first, row.Bundle+" running"), append(then, row.Bundle)
	}
	r.checkIn(first...)
	last := then[proofsAtOnce]
	for _, bundle := range then {
		row := cpuRow(bundle, plan.Finalizing)
		row.ReportCount = 1
		show(r.Bridge, row)
	}
	row := cpuRow(last, plan.Running)
	service.standing[last] = codalab.Standing{State: row.State(), RunStatus: row.RunStatus()}
	for range 2 {
		r.Prove(r.Context(), r.queue)
	}
	r.checkIn(last + " finalizing")
}

// looksFirst is a server that looks at a bundle, then gets a check-in, and only
// then answers what it saw.
type looksFirst struct {
	shows

	then func()
}

func (s *looksFirst) Standing(ctx context.Context, bundle string) (codalab.Standing, error) {
	shown, err := s.shows.Standing(ctx, bundle)
	s.then()
	return shown, err
}

func TestVerdictThatIsSentWhileTheServerIsAskedMayHaveBeenApplied(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	row := cpuRow("0x1", plan.Finalizing)
	row.ReportCount = 1
	show(r.Bridge, row)
	standing := map[string]codalab.Standing{"0x1": {State: codalab.StateRunning}}
	r.doer.service = &looksFirst{shows{standing: standing}, func() { r.checkIn("0x1 finalizing") }}
	if c := r.doer.confirm(t.Context(), row); !c.Carried {
		t.Errorf("%+v shows that the verdict is not with the server", c)
	}
}

func TestBundleThatThisBridgeClaimedOrReportedLastIsItsOwn(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	r.doer.hostname = "login"
	row := cpuRow("0x1", plan.Claiming)
	row.OfferedAt = r.now
	for shown, want := range map[codalab.Standing]bool{
		{Remote: "login", Started: r.now.Unix()}:     true,
		{Remote: "login", Started: r.now.Unix() - 1}: false,
		{Remote: "n7", Started: r.now.Unix()}:        false,
		{Remote: "b-cpu"}:                            true,
		{Remote: "b-gpu"}:                            false,
	} {
		r.doer.service = &shows{standing: map[string]codalab.Standing{"0x1": shown}}
		if c := r.doer.confirm(t.Context(), row); c.Here != want {
			t.Errorf("%+v: here %t", shown, c.Here)
		}
	}
}
