package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestReportIsProvenByWhatTheServerShows(t *testing.T) {
	t.Parallel()
	r := newTeller(t)
	unproven := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, r.Unproven("cpu"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("unproven (-want +got):\n%s", diff)
		}
	}
	row := cpuRow("0x1", plan.Running)
	r.show(row)
	told := row
	r.checkIn("0x1 running")
	unproven()

	row.Phase, row.ReportCount = plan.Finalizing, 1
	r.show(row)
	for _, shown := range []codalab.Standing{
		{State: codalab.StatePreparing, RunStatus: "Waiting for worker"},
		{State: codalab.StateRunning, RunStatus: "other words"},
	} {
		unproven("0x1")
		if r.Prove("cpu", "0x1", shown) {
			t.Errorf("%+v is taken for a proof", shown)
		}
		r.checkIn()
	}
	if !r.Prove("cpu", "0x1", codalab.Standing{State: codalab.StateRunning, RunStatus: told.RunStatus()}) {
		t.Error("what the report said is taken for no proof")
	}
	unproven()
	r.checkIn("0x1 finalizing")
}

// reportedRun returns a book with one run, which was reported in a phase, and the run's row.
func reportedRun(t *testing.T, phase plan.Phase) (*teller, plan.Row) {
	t.Helper()
	r, row := newTeller(t), cpuRow("0x1", phase)
	r.show(row)
	r.answered(r.checkIn("0x1 running"))
	return r, row
}

// wantsNoProof fails if the server is to be asked whether it has applied a report.
func (r *teller) wantsNoProof() {
	r.Helper()
	if bundles := r.Unproven("cpu"); len(bundles) != 0 {
		r.Errorf("unproven: %v", bundles)
	}
}

// Nobody knows whether the server has applied the lost verdict. If it has not, it
// still shows the report before, which says the same as the report after.
func TestReportAfterALostVerdictIsNotProven(t *testing.T) {
	t.Parallel()
	r, row := reportedRun(t, plan.Collecting)
	row.Phase, row.ReportCount = plan.Finalizing, 1
	r.show(row)
	r.Doubt("cpu", r.checkIn("0x1 finalizing"), r.now)
	row.Phase = plan.Collecting
	r.show(row)
	again := r.checkIn("0x1 running")
	row.Phase, row.ReportCount = plan.Finalizing, 2
	r.show(row)
	r.wantsNoProof()
	r.checkIn()
	r.answered(again)
	r.checkIn("0x1 finalizing")
}

// A refreshed report says what the one before said, so the server may show either.
func TestRefreshedReportIsNotProven(t *testing.T) {
	t.Parallel()
	r, row := reportedRun(t, plan.Running)
	r.now = r.now.Add(RefreshEvery)
	refresh := r.checkIn("0x1 running")
	row.Phase, row.ReportCount = plan.Finalizing, 1
	r.show(row)
	r.wantsNoProof()
	r.checkIn()
	r.answered(refresh)
	r.checkIn("0x1 finalizing")
}

// The server may never show what one report said. It is asked for the others too.
// Our server answers a check-in when a newer one of the worker comes.
func TestNewStateThatWaitsWithoutAProofCallsForAnotherCheckInOnce(t *testing.T) {
	t.Parallel()
	r, row := reportedRun(t, plan.Running)
	callsFor := func(when string, want Urgency) {
		t.Helper()
		if most, blocked := r.Pending("cpu", r.now); most != want || !blocked {
			t.Errorf("%s: urgency %d, blocked %t; want %d, true", when, most, blocked, want)
		}
	}
	r.now = r.now.Add(RefreshEvery)
	refresh := r.checkIn("0x1 running")
	row.Phase = plan.Collecting
	r.show(row)
	callsFor("other words", None)
	row.Phase, row.ReportCount = plan.Finalizing, 1
	r.show(row)
	callsFor("a verdict", Urgent)
	r.checkIn()
	callsFor("a verdict, after another check-in", None)
	r.answered(refresh)
	r.checkIn("0x1 finalizing")

	proven, row := newTeller(t), cpuRow("0x1", plan.Running)
	r = proven
	r.show(row)
	r.checkIn("0x1 running")
	row.Phase, row.ReportCount = plan.Finalizing, 1
	r.show(row)
	callsFor("a verdict for which there is a proof", None)
}
