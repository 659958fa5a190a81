package slurmtest_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

const ann = 1001

// model is a controller with a clock that the test moves.
type model struct {
	*testing.T
	*slurmtest.Controller
	now    time.Time
	orders []slurmtest.Order
}

func newModel(t *testing.T) *model {
	t.Helper()
	return &model{T: t, Controller: slurmtest.New(slurmtest.NewSite()), now: time.Unix(1_800_000_000, 0)}
}

func request(name string, extra ...string) sbatch.Request {
	return sbatch.Request{Name: name, Comment: "of " + name, Script: "#!/bin/sh\n", Extra: extra}
}

func (m *model) submit(r sbatch.Request) sbatch.JobID {
	m.Helper()
	id, err := m.Submit(m.now, ann, r)
	if err != nil {
		m.Fatal(err)
	}
	return id
}

// pass lets time pass, and keeps the orders.
func (m *model) pass(d time.Duration) {
	m.now = m.now.Add(d)
	m.orders = append(m.orders, m.Advance(m.now)...)
}

func (m *model) start(r sbatch.Request) sbatch.JobID {
	m.Helper()
	id := m.submit(r)
	m.pass(time.Second)
	m.wantState(id, sbatch.StateRunning, "None")
	return id
}

func (m *model) ended(id sbatch.JobID, restart int, end slurmtest.End) {
	m.Ended(m.now, id, restart, end)
	m.pass(time.Second)
}

func (m *model) job(id sbatch.JobID) sbatch.Job {
	m.Helper()
	s, err := m.Observe(m.now, ann)
	if err != nil {
		m.Fatal(err)
	}
	for _, j := range s.Jobs {
		if j.ID == id {
			return j
		}
	}
	return sbatch.Job{}
}

func (m *model) wantState(id sbatch.JobID, state sbatch.State, reason string) sbatch.Job {
	m.Helper()
	j := m.job(id)
	if j.State != state || j.Reason != reason {
		m.Errorf("job %d is %s (%s), want %s (%s)", id, j.State, j.Reason, state, reason)
	}
	return j
}

// accounting checks the states of the instances of a name in the accounting database.
func (m *model) accounting(name string, want ...sbatch.State) {
	m.Helper()
	jobs, err := m.QueryAccounting(m.now, ann, time.Time{}, sbatch.Which{Names: []string{name}})
	if err != nil {
		m.Fatal(err)
	}
	if len(jobs) != len(want) {
		m.Fatalf("accounting of %s: %+v, want %v", name, jobs, want)
	}
	for i, j := range jobs {
		if j.State != want[i] || j.Name != name || j.Comment != "" {
			m.Errorf("record %d of %s: %+v, want %s", i, name, j, want[i])
		}
	}
}

// wantOrders checks the orders for a job.
func (m *model) wantOrders(id sbatch.JobID, want ...slurmtest.OrderKind) {
	m.Helper()
	var got []slurmtest.OrderKind
	for _, o := range m.orders {
		if o.Job == id {
			got = append(got, o.Kind)
		}
	}
	if len(got) != len(want) {
		m.Fatalf("orders for job %d: %v, want %v", id, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			m.Fatalf("orders for job %d: %v, want %v", id, got, want)
		}
	}
}

func TestLifeOfAJob(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	id := m.submit(request("a"))
	if j := m.wantState(id, sbatch.StatePending, "None"); !j.Start.IsZero() || j.Comment != "of a" || j.Nodes != "" {
		t.Errorf("at first: %+v", j)
	}
	m.accounting("a")
	m.pass(time.Second)
	if j := m.wantState(id, sbatch.StateRunning, "None"); !j.Start.Equal(m.now) || j.Nodes != "n1" {
		t.Errorf("%+v", j)
	}
	m.accounting("a") // the database does not know its name yet
	m.pass(time.Minute)
	m.accounting("a", sbatch.StateRunning)
	m.Ended(m.now, id, 0, slurmtest.End{Code: 3})
	m.wantState(id, sbatch.StateCompleting, "NonZeroExitCode")
	m.pass(time.Second)
	m.wantState(id, sbatch.StateFailed, "NonZeroExitCode")
	m.accounting("a", sbatch.StateFailed)
	m.pass(5 * time.Minute)
	if j := m.job(id); j.ID != 0 {
		t.Errorf("after MinJobAge: %+v", j)
	}
	m.accounting("a", sbatch.StateFailed)
	m.wantOrders(id, slurmtest.Start)
}

func TestTimeLimitIsLookedAtNowAndThen(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	m.now = m.now.Truncate(30 * time.Second).Add(20 * time.Second)
	r := request("a")
	r.Time = time.Minute
	id := m.start(r)
	m.pass(68 * time.Second)
	m.wantState(id, sbatch.StateRunning, "None")
	m.pass(2 * time.Second)
	m.wantState(id, sbatch.StateCompleting, "TimeLimit")
	m.ended(id, 0, slurmtest.End{Signal: 15})
	m.wantState(id, sbatch.StateTimeout, "TimeLimit")
}

func TestJobsThatDoNotFitWait(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	gpu := func(n int64) sbatch.Request {
		r := request("a")
		r.Partition, r.GPUs, r.GPUType = "gpu", n, "a100"
		return r
	}
	first := m.start(gpu(3))
	m.start(gpu(3))
	waits := m.submit(gpu(2))
	m.pass(time.Second)
	if j := m.wantState(waits, sbatch.StatePending, "Resources"); !j.Start.Equal(m.job(first).Start.Add(time.Hour)) {
		t.Errorf("%+v: want it to be expected at the first's limit", j)
	}
	m.start(gpu(1))
	if gpus := m.orders[len(m.orders)-1].GPUs; len(gpus) != 1 || gpus[0] != 3 {
		t.Errorf("GPUs %v, want the fourth", gpus)
	}
	m.ended(first, 0, slurmtest.End{})
	m.wantState(waits, sbatch.StateRunning, "None")
	wide := request("w")
	wide.CPUs = 500
	id := m.submit(wide)
	m.pass(time.Second)
	m.wantState(id, sbatch.StatePending, "PartitionConfig")
}
