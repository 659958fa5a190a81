package slurmtest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// shows checks the user's jobs, each as its id and its state.
func (m *model) shows(want string) {
	m.Helper()
	s, err := m.Observe(m.now, ann)
	if err != nil {
		m.Fatal(err)
	}
	m.are("Observe", s.Jobs, want)
}

func (m *model) are(what string, jobs []sbatch.Job, want string) {
	m.Helper()
	var got []string
	for _, j := range jobs {
		got = append(got, j.ID.String()+" "+string(j.State))
	}
	if list := strings.Join(got, ", "); list != want {
		m.Errorf("%s: %s, want %s", what, list, want)
	}
}

// accounts checks the jobs of a question by ids in the accounting database.
func (m *model) accounts(want string, ids ...sbatch.JobID) {
	m.Helper()
	jobs, err := m.QueryAccounting(m.now, ann, time.Time{}, sbatch.Which{IDs: ids})
	if err != nil {
		m.Fatal(err)
	}
	m.are("accounting", jobs, want)
}

func array(tasks int, extra ...string) sbatch.Request {
	r := request("a", extra...)
	r.Tasks, r.CPUs = tasks, 64 // a node each; two in the default partition
	return r
}

func TestTaskGetsARecordAndANumberWhenItBegins(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	id := m.submit(array(4))
	next := m.submit(request("b", "--hold"))
	m.shows("1_0 PENDING, 1_1 PENDING, 1_2 PENDING, 1_3 PENDING, 2 PENDING")
	m.pass(3 * time.Second)
	m.shows("1_2 PENDING, 1_3 PENDING, 2 PENDING, 1_0 RUNNING, 1_1 RUNNING")
	m.wantState(id.Task(3), sbatch.StatePending, "Resources")
	for i, number := range []sbatch.JobID{3, 4} {
		if o := m.orders[i]; o.Kind != slurmtest.Start || o.Job != id.Task(i) || o.Number != number {
			t.Errorf("%+v", o)
		}
	}
	m.accounts("1_1 RUNNING", id.Task(1), id.Task(2), 4)
	m.accounts("1_2 PENDING, 1_3 PENDING, 1_0 RUNNING, 1_1 RUNNING", id)

	m.ended(id.Task(0), 0, slurmtest.End{})
	m.ended(id.Task(1), 0, slurmtest.End{Code: 1})
	if o := m.orders[3]; o.Job != id.Task(3) || o.Number != 1 {
		t.Errorf("the last task has the array's number: %+v", o)
	}
	m.shows("1_3 RUNNING, 2 PENDING, 1_0 COMPLETED, 1_1 FAILED, 1_2 RUNNING")
	if err := m.Cancel(m.now, ann, id, ""); err != nil {
		t.Fatal(err)
	}
	m.pass(time.Millisecond)
	m.wantOrders(id.Task(2), slurmtest.Start, slurmtest.Terminate)
	m.wantOrders(id.Task(3), slurmtest.Start, slurmtest.Terminate)
	m.wantState(next, sbatch.StatePending, "JobHeldUser")
	m.ended(id.Task(2), 0, slurmtest.End{Signal: 15})
	m.ended(id.Task(3), 0, slurmtest.End{Signal: 15})
	m.pass(time.Second)
	m.accounts("1_3 CANCELLED, 1_0 COMPLETED, 1_1 FAILED, 1_2 CANCELLED", id)
	m.pass(time.Hour)
	m.shows("2 PENDING")
}

func TestTaskIsHeldAndRequeuedAlone(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	id := m.submit(array(3, "--requeue", "--hold"))
	m.Release(m.now, id)
	m.Hold(m.now, id.Task(0))
	m.pass(time.Second)
	m.shows("1_2 RUNNING, 1_0 PENDING, 1_1 RUNNING")
	if err := m.Requeue(m.now, id.Task(1)); err != nil {
		t.Fatal(err)
	}
	m.ended(id.Task(1), 0, slurmtest.End{Signal: 15})
	m.wantState(id.Task(1), sbatch.StatePending, "BeginTime")
	if m.LastRequeue(id.Task(1)).IsZero() || !m.LastRequeue(id.Task(2)).IsZero() || !m.LastRequeue(id).IsZero() {
		t.Error("another one was requeued")
	}
	m.pass(3 * time.Minute)
	m.wantState(id.Task(1), sbatch.StateRunning, "None")
	m.wantOrders(id.Task(1), slurmtest.Start, slurmtest.Terminate, slurmtest.Start)
	m.ended(id.Task(1), 1, slurmtest.End{})
	m.Hold(m.now, id)
	m.Release(m.now, id)
	m.pass(time.Second)
	m.wantState(id.Task(0), sbatch.StateRunning, "None")
	m.accounts("1_1 REQUEUED, 1_1 COMPLETED", id.Task(1))
}

// The database keeps the list of the tasks that wait until one of them begins, or none is left.
func TestAccountingLearnsLateOfTasksThatNeverBegan(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	id := m.submit(array(6))
	m.pass(3 * time.Second)
	for _, task := range []int{3, 4} {
		if err := m.Cancel(m.now, ann, id.Task(task), "a"); err != nil {
			t.Fatal(err)
		}
	}
	m.shows("1_2 PENDING, 1_5 PENDING, 1_0 RUNNING, 1_1 RUNNING")
	const before = "1_2 PENDING, 1_3 PENDING, 1_4 PENDING, 1_5 PENDING, 1_0 RUNNING, 1_1 RUNNING"
	m.accounts(before, id)
	m.accounts("", id.Task(3), id.Task(5))
	m.ended(id.Task(0), 0, slurmtest.End{})
	m.accounts("1_5 PENDING, 1_0 COMPLETED, 1_1 RUNNING, 1_2 RUNNING", id)
	if err := m.Cancel(m.now, ann, id.Task(5), ""); err != nil {
		t.Fatal(err)
	}
	m.pass(time.Second)
	m.shows("1 CANCELLED, 1_0 COMPLETED, 1_1 RUNNING, 1_2 RUNNING")
	m.accounts("1_5 CANCELLED, 1_0 COMPLETED, 1_1 RUNNING, 1_2 RUNNING", id)
}

func TestNodeThatFailsEndsItsTasksAlone(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	id := m.submit(array(3))
	m.pass(time.Second)
	if err := m.SetNode(m.now, "n1", slurmtest.NodeLost); err != nil {
		t.Fatal(err)
	}
	m.pass(time.Second)
	m.wantState(id.Task(0), sbatch.StateNodeFail, "NodeDown")
	m.wantState(id.Task(1), sbatch.StateRunning, "None")
	m.wantState(id.Task(2), sbatch.StatePending, "Resources")
}

func TestControllerThatLosesAnArrayAssignsItsNumberAgain(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	id := m.submit(array(3))
	m.pass(time.Second)
	m.Lose(m.now)
	again := m.submit(array(2))
	m.pass(time.Second)
	if again != id {
		t.Errorf("array %s, want %s", again, id)
	}
	m.shows("1_1 RUNNING, 1_0 RUNNING")
}
