package slurmtest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

func TestNodeThatFailsTakesItsJobsWithIt(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	lost, again := m.start(request("a")), m.start(request("b", "--requeue"))
	if err := m.SetNode(m.now, "n1", slurmtest.NodeLost); err != nil {
		t.Fatal(err)
	}
	m.wantState(again, sbatch.StatePending, "None")
	m.pass(time.Second)
	if j := m.wantState(lost, sbatch.StateNodeFail, "NodeDown"); j.Nodes != "n1" {
		t.Errorf("%+v", j)
	}
	if j := m.wantState(again, sbatch.StatePending, "BeginTime"); j.Nodes != "" || j.Start.Sub(m.now) != 120*time.Second {
		t.Errorf("%+v", j)
	}
	m.Ended(m.now, lost, 0, slurmtest.End{}) // a report of a node that is down is ignored
	m.Ended(m.now, again, 0, slurmtest.End{})
	m.pass(119 * time.Second)
	m.wantState(lost, sbatch.StateNodeFail, "NodeDown")
	m.pass(2 * time.Second)
	if j := m.wantState(again, sbatch.StateRunning, "None"); j.Nodes != "n2" {
		t.Errorf("%+v", j)
	}
	if last := m.orders[len(m.orders)-1]; last.Kind != slurmtest.Start || last.Restart != 1 {
		t.Errorf("%+v, want the second beginning", last)
	}
	m.pass(10 * time.Second)
	m.accounting("a", sbatch.StateNodeFail)
	m.accounting("b", sbatch.StateNodeFail, sbatch.StateRunning)
	if err := m.SetNode(m.now, "n2", slurmtest.NodeDown); err != nil {
		t.Fatal(err)
	}
	m.pass(time.Second)
	m.wantOrders(again, slurmtest.Start, slurmtest.Start, slurmtest.Kill)
}

func TestProcessesOfALostNodeAreKilledWhenItIsBack(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	id := m.start(request("a"))
	for _, state := range []string{slurmtest.NodeLost, slurmtest.NodeResume} {
		m.wantOrders(id, slurmtest.Start)
		if err := m.SetNode(m.now, "n1", state); err != nil {
			t.Fatal(err)
		}
		m.pass(time.Second)
	}
	m.wantOrders(id, slurmtest.Start, slurmtest.Kill)
	m.wantState(id, sbatch.StateNodeFail, "NodeDown")
}

func TestRequeueBeginsAJobAgainUnderItsID(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	id, never := m.start(request("a", "--requeue")), m.start(request("b"))
	if err := m.Requeue(m.now, never); err == nil {
		t.Error("requeued in spite of --no-requeue")
	}
	if err := m.Requeue(m.now, id); err != nil {
		t.Fatal(err)
	}
	first := m.wantState(id, sbatch.StateCompleting, "None").Submitted
	m.pass(time.Second)
	m.ended(id, 0, slurmtest.End{Signal: 15})
	again := m.wantState(id, sbatch.StatePending, "BeginTime")
	if after := again.Submitted.Sub(first); after < 2*time.Second {
		t.Errorf("submitted again after %s, want 2s or more: once it has completed", after)
	}
	if delay := again.Start.Sub(again.Submitted); delay != slurmtest.NewSite().RequeueDelay {
		t.Errorf("it may start again %s after that", delay)
	}
	m.pass(3 * time.Minute)
	m.wantState(id, sbatch.StateRunning, "None")
	m.ended(id, 0, slurmtest.End{}) // of its first launch
	m.wantState(id, sbatch.StateRunning, "None")
	m.ended(id, 1, slurmtest.End{})
	m.wantState(id, sbatch.StateCompleted, "None")
	m.accounting("a", sbatch.StateRequeued, sbatch.StateCompleted)
}

func TestJobThatIsCancelledWhileItIsRequeued(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	id := m.start(request("a", "--requeue"))
	run := m.job(id)
	m.pass(time.Minute)
	if err := errors.Join(m.Requeue(m.now, id), m.Cancel(m.now, ann, id, "a")); err != nil {
		t.Fatal(err)
	}
	m.ended(id, 0, slurmtest.End{Signal: 15})
	if j := m.wantState(id, sbatch.StateCancelled, "None"); !j.Submitted.Equal(run.Submitted) || !j.Start.Equal(run.Start) || !m.LastRequeue(id).IsZero() {
		t.Errorf("it shows %+v, want the times of its only run: %+v", j, run)
	}
	m.pass(time.Minute)
	m.accounting("a", sbatch.StateRequeued)
	m.wantOrders(id, slurmtest.Start, slurmtest.Terminate)
}

func TestAdministratorChangesAJob(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	m.Hold(m.now, m.submit(request("a")))
	const waiting = 1
	running := m.start(request("b"))
	comment := "charge=1234"
	err := errors.Join(
		m.Update(m.now, waiting, slurmtest.Change{Partition: "gpu", Time: 2 * time.Hour}),
		m.Update(m.now, running, slurmtest.Change{Name: "vip", Comment: &comment, Time: time.Minute}),
	)
	if err != nil {
		t.Fatal(err)
	}
	for id, change := range map[sbatch.JobID]slurmtest.Change{running: {Partition: "gpu"}, waiting: {Partition: "nosuch"}, 77: {Name: "x"}} {
		if err := m.Update(m.now, id, change); err == nil {
			t.Errorf("job %d took %+v", id, change)
		}
	}
	if d, err := m.Describe(m.now, waiting); err != nil || d.Partition != "gpu" || d.Time != 2*time.Hour || d.Name != "a" {
		t.Errorf("%+v, %v", d, err)
	}
	if j := m.job(running); j.Name != "vip" || j.Comment != comment {
		t.Errorf("%+v", j)
	}
	m.pass(2 * time.Minute)
	m.accounting("vip", sbatch.StateTimeout)
	m.ended(running, 0, slurmtest.End{Signal: 15})
	m.wantState(running, sbatch.StateTimeout, "TimeLimit")
}

func TestRequeuedJobIsHeldUntilItIsReleased(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	id := m.start(request("a"))
	if !m.Signal(m.now, id) {
		t.Fatal("no signal")
	}
	m.pass(0)
	m.wantState(id, sbatch.StateRunning, "None")
	m.wantOrders(id, slurmtest.Start, slurmtest.Terminate)
	if err := errors.Join(m.Update(m.now, id, slurmtest.Change{Requeue: true}), m.RequeueHold(m.now, id)); err != nil {
		t.Fatal(err)
	}
	m.ended(id, 0, slurmtest.End{Signal: 15})
	m.pass(time.Hour)
	m.wantState(id, sbatch.StatePending, "job requeued in held state")
	m.Release(m.now, id)
	m.pass(time.Second)
	m.wantState(id, sbatch.StateRunning, "None")
}

func TestPreemption(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	lost, again := m.start(request("a")), m.start(request("b", "--requeue"))
	m.Preempt(m.now, lost, true)
	m.Preempt(m.now, again, true)
	m.ended(lost, 0, slurmtest.End{Signal: 15})
	m.ended(again, 0, slurmtest.End{Signal: 15})
	m.wantState(lost, sbatch.StatePreempted, "None")
	m.wantState(again, sbatch.StatePending, "BeginTime")
}

func TestNodeThatDoesNotBoot(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	boot := m.submit(request("a"))
	m.FailBoot(m.now, boot)
	m.wantState(boot, sbatch.StateBootFail, "NodeDown")
	m.wantOrders(boot)
}

func TestNodeThatCannotLaunchAJobCancelsIt(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	lost, again := m.submit(request("a")), m.submit(request("b", "--requeue"))
	if m.FailLaunch(m.now, again) || !m.FailLaunch(m.now, lost) {
		t.Error("a job that may be requeued is cancelled, or another is not")
	}
	m.wantState(lost, sbatch.StateCancelled, "None")
	m.wantOrders(lost)
	m.now = m.now.Add(time.Hour)
	jobs, err := m.QueryAccounting(m.now, ann, time.Time{}, sbatch.Which{IDs: []sbatch.JobID{lost}})
	if err != nil || len(jobs) != 1 || jobs[0].State != sbatch.StateCancelled || jobs[0].CancelledBy != "0" || jobs[0].Nodes == "" {
		t.Errorf("%+v, %v", jobs, err)
	}
}

func TestControllerThatIsAwayAndBack(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	ends, runs := m.start(request("a")), m.start(request("b"))
	m.Stop(m.now)
	var e *sbatch.Error
	if _, err := m.Submit(m.now, ann, request("c")); !errors.As(err, &e) || e.Refused {
		t.Errorf("submit: %+v", err)
	}
	if _, err := m.Observe(m.now, ann); !errors.As(err, &e) || !e.Transient() {
		t.Errorf("observe: %+v", err)
	}
	if err := m.Cancel(m.now, ann, ends, ""); err == nil {
		t.Error("cancelled")
	}
	m.Ended(m.now, ends, 0, slurmtest.End{Code: 1})
	m.pass(time.Minute)
	m.Start(m.now)
	m.pass(time.Second)
	m.wantState(ends, sbatch.StateFailed, "NonZeroExitCode")
	m.wantState(runs, sbatch.StateRunning, "None")
	jobs, err := m.QueryAccounting(m.now, ann, m.now.Add(-30*time.Second), sbatch.Which{Names: []string{"a"}})
	if err != nil || len(jobs) != 1 {
		t.Errorf("%+v, %v: want its end to be when the controller came back", jobs, err)
	}
}

func TestLostStateGivesIDsOutAgain(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	lost := m.start(request("lost"))
	m.pass(time.Minute)
	m.Lose(m.now)
	if s, err := m.Observe(m.now, ann); err != nil || len(s.Jobs) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if id := m.submit(request("new")); id != lost {
		t.Errorf("id %d, want %d again", id, lost)
	}
	m.pass(time.Second)
	m.wantOrders(lost, slurmtest.Start, slurmtest.Kill, slurmtest.Start)
	m.accounting("lost", sbatch.StateRunning)
}

func TestDatabaseThatIsBehindOrAway(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	m.Database.Behind = 10 * time.Second
	id := m.start(request("a"))
	m.pass(5 * time.Second)
	m.accounting("a")
	m.ended(id, 0, slurmtest.End{})
	m.pass(8 * time.Second)
	m.accounting("a", sbatch.StateRunning)
	m.pass(10 * time.Second)
	m.accounting("a", sbatch.StateCompleted)
	m.Database = slurmtest.Database{DownUntil: m.now.Add(time.Second), LosesEnds: true}
	if _, err := m.QueryAccounting(m.now, ann, time.Time{}, sbatch.Which{Names: []string{"a"}}); err == nil {
		t.Error("it answers")
	}
	id = m.start(request("b"))
	m.ended(id, 0, slurmtest.End{})
	m.pass(time.Hour)
	m.accounting("b", sbatch.StateRunning)
}

func TestTimeLimitOfASuspendedJobDoesNotRun(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	r := request("a")
	r.Time = time.Minute
	id := m.start(r)
	if !m.Suspend(m.now, id) || m.Suspend(m.now, id) {
		t.Fatal("a running job is suspended, and a suspended one is not again")
	}
	m.pass(time.Hour)
	m.wantState(id, sbatch.StateSuspended, "None")
	m.Resume(m.now, id)
	m.pass(50 * time.Second)
	m.wantState(id, sbatch.StateRunning, "None")
	m.pass(time.Minute)
	m.wantState(id, sbatch.StateCompleting, "TimeLimit")
	m.wantOrders(id, slurmtest.Start, slurmtest.Suspend, slurmtest.Resume, slurmtest.Terminate, slurmtest.Kill)
}

// A job that was suspended for longer than MinJobAge disappears at once when it is cancelled, because it ended
// when it was suspended.
func TestCancelledSuspendedJobEndedWhenItWasSuspended(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	id := m.start(request("a"))
	m.Suspend(m.now, id)
	m.pass(time.Hour)
	if err := m.Cancel(m.now, ann, id, ""); err != nil {
		t.Fatal(err)
	}
	m.ended(id, 0, slurmtest.End{Signal: 9})
	if s, err := m.Observe(m.now, ann); err != nil || len(s.Jobs) > 0 {
		t.Errorf("%+v, %v; want none", s.Jobs, err)
	}
	m.accounting("a", sbatch.StateCancelled)
	m.wantOrders(id, slurmtest.Start, slurmtest.Suspend, slurmtest.Kill)
}

func TestWarningComesOnceBeforeTheLimit(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	r := request("a", "--signal=B:TERM@60")
	r.Time = 5 * time.Minute
	id := m.start(r)
	m.pass(3*time.Minute + 50*time.Second)
	m.wantOrders(id, slurmtest.Start)
	m.pass(time.Minute)
	m.wantOrders(id, slurmtest.Start, slurmtest.Terminate)
	m.wantState(id, sbatch.StateRunning, "None")
}
