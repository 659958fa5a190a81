package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// shows is a server that shows each bundle as standing has it.
type shows struct {
	BundleService

	standing map[string]codalab.Standing
	asked    []string
}

func (s *shows) Standing(_ context.Context, bundle string) (codalab.Standing, error) {
	s.asked = append(s.asked, bundle)
	return s.standing[bundle], nil
}

func TestReportIsProvenByWhatTheServerShows(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	service := &shows{standing: map[string]codalab.Standing{}}
	r.Service = service
	prove := func(wantLeft bool, wantAsked ...string) {
		t.Helper()
		service.asked = nil
		if left := r.Prove(t.Context(), r.queue); left != wantLeft || !slices.Equal(service.asked, wantAsked) {
			t.Errorf("left %t, asked for %v; want %t, %v", left, service.asked, wantLeft, wantAsked)
		}
	}
	row := cpuRow("0x1", plan.Running)
	show(r.Bridge, row)
	told := row
	r.checkIn("0x1 running")
	prove(false)

	row.Phase, row.ReportCount = plan.Finalizing, 1
	show(r.Bridge, row)
	for _, shown := range []codalab.Standing{
		{State: codalab.StatePreparing, RunStatus: "Waiting for worker"},
		{State: codalab.StateRunning, RunStatus: "other words"},
	} {
		service.standing["0x1"] = shown
		prove(true, "0x1")
		r.checkIn()
	}
	service.standing["0x1"] = codalab.Standing{State: codalab.StateRunning, RunStatus: told.RunStatus()}
	r.signals()
	prove(false, "0x1")
	if urgent, _ := r.signals(); !urgent {
		t.Error("what was proven is not urgent")
	}
	r.checkIn("0x1 finalizing")
}

// reportedRun is a bridge that has reported a run in a phase, and has had the
// answer to that; and the server, which shows what the report said.
func reportedRun(t *testing.T, phase plan.Phase) (*teller, plan.Row, *shows) {
	t.Helper()
	r, row := newTeller(t), cpuRow("0x1", phase)
	service := &shows{standing: map[string]codalab.Standing{"0x1": {State: row.State(), RunStatus: row.RunStatus()}}}
	r.Service = service
	show(r.Bridge, row)
	r.Answered(r.queue, r.checkIn("0x1 running"), nil)
	return r, row, service
}

// asksForNoProof fails if the server is asked whether it has applied a report.
func (r *teller) asksForNoProof(service *shows) {
	r.Helper()
	if left := r.Prove(r.Context(), r.queue); left || len(service.asked) != 0 {
		r.Errorf("asked for %v", service.asked)
	}
}

// Nobody knows whether the server has applied the lost verdict. If it has not, it
// still shows the report before, which says the same as the report after.
func TestReportAfterALostVerdictIsNotProven(t *testing.T) {
	t.Parallel()
	r, row, service := reportedRun(t, plan.Collecting)
	row.Phase, row.ReportCount = plan.Finalizing, 1
	show(r.Bridge, row)
	r.Unanswered(r.queue, r.checkIn("0x1 finalizing"), errors.New("connection reset"))
	row.Phase = plan.Collecting
	show(r.Bridge, row)
	again := r.checkIn("0x1 running")
	row.Phase, row.ReportCount = plan.Finalizing, 2
	show(r.Bridge, row)
	r.asksForNoProof(service)
	r.checkIn()
	r.Answered(r.queue, again, nil)
	r.checkIn("0x1 finalizing")
}

// A refreshed report says what the one before said, so the server may show either.
func TestRefreshedReportIsNotProven(t *testing.T) {
	t.Parallel()
	r, row, service := reportedRun(t, plan.Running)
	r.now = r.now.Add(refreshEvery)
	refresh := r.checkIn("0x1 running")
	row.Phase, row.ReportCount = plan.Finalizing, 1
	show(r.Bridge, row)
	r.asksForNoProof(service)
	r.checkIn()
	r.Answered(r.queue, refresh, nil)
	r.checkIn("0x1 finalizing")
}

// The server may never show what one report said. It is asked for the others too.
// Our server answers a check-in when a newer one of the worker comes.
func TestNewStateThatWaitsWithoutAProofCallsForAnotherCheckInOnce(t *testing.T) {
	t.Parallel()
	r, row, _ := reportedRun(t, plan.Running)
	callsFor := func(when string, want int) {
		t.Helper()
		if below, blocked := r.view.pending(r.queue.Name, r.now); below != want || !blocked {
			t.Errorf("%s: another check-in below %d held ones, blocked %t; want %d, true", when, below, blocked, want)
		}
	}
	r.now = r.now.Add(refreshEvery)
	refresh := r.checkIn("0x1 running")
	row.Phase = plan.Collecting
	show(r.Bridge, row)
	callsFor("other words", 0)
	row.Phase, row.ReportCount = plan.Finalizing, 1
	show(r.Bridge, row)
	callsFor("a verdict", mostHeld)
	r.checkIn()
	callsFor("a verdict, after another check-in", 0)
	r.Answered(r.queue, refresh, nil)
	r.checkIn("0x1 finalizing")

	proven, row := newTeller(t), cpuRow("0x1", plan.Running)
	r = proven
	show(r.Bridge, row)
	r.checkIn("0x1 running")
	row.Phase, row.ReportCount = plan.Finalizing, 1
	show(r.Bridge, row)
	callsFor("a verdict for which there is a proof", 0)
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
	r.Service = &looksFirst{shows{standing: standing}, func() { r.checkIn("0x1 finalizing") }}
	if c := r.confirm(t.Context(), row); !c.Carried {
		t.Errorf("%+v shows that the verdict is not with the server", c)
	}
}

func TestBundleThatThisBridgeClaimedOrReportedLastIsItsOwn(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	r.Hostname = "login"
	row := cpuRow("0x1", plan.Claiming)
	row.OfferedAt = r.now
	for shown, want := range map[codalab.Standing]bool{
		{Remote: "login", Started: r.now.Unix()}:     true,
		{Remote: "login", Started: r.now.Unix() - 1}: false,
		{Remote: "n7", Started: r.now.Unix()}:        false,
		{Remote: "b-cpu"}:                            true,
		{Remote: "b-gpu"}:                            false,
	} {
		r.Service = &shows{standing: map[string]codalab.Standing{"0x1": shown}}
		if c := r.confirm(t.Context(), row); c.Here != want {
			t.Errorf("%+v: here %t", shown, c.Here)
		}
	}
}
