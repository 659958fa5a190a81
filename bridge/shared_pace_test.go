package bridge

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// tasks are the ids of tasks of an array.
func tasks(array sbatch.JobID, n int) []sbatch.JobID {
	ids := make([]sbatch.JobID, n)
	for i := range ids {
		ids[i] = array.Task(i)
	}
	return ids
}

// scancel costs the controller one request for all tasks of an array.
func TestOneCancellationIsForAllTasksOfItsArrays(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	alternating := []sbatch.JobID{1}
	for i := range 20 {
		alternating = append(alternating, sbatch.JobID(2).Task(i), sbatch.JobID(3).Task(i), sbatch.JobID(4).Task(i), sbatch.JobID(10+i))
	}
	for name, c := range map[string]struct {
		ids     []sbatch.JobID
		bounded bool
		want    int
	}{
		"one array":             {tasks(7, 250), true, 250},
		"an array and jobs":     {append(tasks(7, 250), 1, 2, 3, 4), true, 252},
		"four arrays and jobs":  {alternating, true, 41},
		"without a bound":       {append(tasks(7, 250), tasks(8, 250)...), false, 500},
		"jobs without a bound":  {alternating, false, 81},
		"more than one command": {tasks(7, mostTasksInOneCall+1), true, mostTasksInOneCall},
	} {
		b := opened(t)
		jobs := b.decider.jobs
		jobs.observed, jobs.asked, jobs.submitted, b.decider.pace.bounded = true, now, map[sbatch.JobID]time.Time{}, c.bounded
		var wanted []plan.Effect
		for _, id := range c.ids {
			jobs.submitted[id] = now
			e := plan.Effect{Kind: plan.Cancel, Row: &plan.Row{Bundle: id.String(), Attempt: plan.Attempt{Job: sbatch.Job{ID: id, Submitted: now}}}}
			b.decider.starter.active.begin(e)
			wanted = append(wanted, e)
		}
		started := b.decider.starter.startNow(now, wanted)
		if len(started) != 1 || len(started[0].Rows()) != c.want || len(b.decider.starter.held) != len(wanted)-c.want {
			t.Errorf("%s: %d commands, the first for %d jobs, and %d are held", name, len(started), len(started[0].Rows()), len(b.decider.starter.held))
		}
	}
}

// Rows wait for others of their lane that are coming, for a while; a row alone goes at once.
func TestRowsGatherForAnArray(t *testing.T) {
	t.Parallel()
	rows := several("1", 0, 4)
	for i := range rows[:3] {
		rows[i].Spent.StagedAt = time.Unix(1_800_000_000, 0)
	}
	rows[3].Staged, rows[3].Phase = nil, plan.Staging // it is coming
	alone := waiting("2", 9)
	a := newArrays(t, append(rows, alone)...)
	a.observe()
	a.step()
	a.want("submissions at once", a.sizes(), []int{0})
	a.want("the one that is alone", a.row(9).Phase, plan.Queued)
	a.pass(time.Second)
	a.want("submissions while another one is coming", len(a.submitted), 1)
	a.b.inbox.put(a.row(3).Bundle, func(n *plan.News) { n.Staged = &plan.StageEnd{} })
	a.pass(0)
	a.want("submissions when all are there", a.sizes(), []int{0, 4})

	late := several("1", 20, 2)
	late[0].Spent.StagedAt = time.Unix(1_800_000_000, 0)
	late[1].Staged = nil
	a = newArrays(t, late...)
	a.pass(gatherFor + time.Second)
	a.want("submissions after the longest time", a.sizes(), []int{0})
}

// The pace counts submissions, and not the bundles in them.
func TestPaceCountsAnArrayAsOneSubmission(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 16)...)
	a.b.decider.pace = newPace(Pace{PerSecond: 1, Burst: 1}, time.Minute)
	a.b.decider.starter.pace = a.b.decider.pace
	a.pass(3 * time.Second)
	a.want("tasks of the submissions", a.sizes(), []int{8, 8})
}

func setPace(a *arrays, perSecond float64, burst int) {
	a.b.decider.pace = newPace(Pace{PerSecond: perSecond, Burst: burst}, 5*time.Second)
	a.b.decider.starter.pace = a.b.decider.pace
}

// With the default pace (2 a second, burst 20) an array has as many tasks as array_tasks allows, not as the pace allows sbatches.
func TestPaceBoundsNoTasks(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 200)...)
	a.setQueue(func(q *plan.Queue) { q.ArrayTasks = 200 })
	setPace(a, 2, 20)
	a.pass(20 * time.Second)
	if len(a.submitted) != 1 {
		t.Errorf("%d submissions for 200 equal rows with array_tasks = 200: %v", len(a.submitted), a.sizes())
	}
}

// Submissions that gather count in the budget: else more become Asked than the pace lets go within SubmitWithin.
func TestGatheringSubmissionsUseUpThePace(t *testing.T) {
	t.Parallel()
	rows := several("1", 0, 400)
	a := newArrays(t, rows...)
	setPace(a, 2, 20)
	s := &slowPrepare{arrays: a, written: map[string]int64{}}
	opened := a.now.Add(4 * time.Second) // the disk takes 4 s
	s.hold = func(plan.Effect) bool { return a.now.Before(opened) }
	refused := 0
	a.answer = func(int) plan.SbatchAnswer {
		e := a.submitted[len(a.submitted)-1]
		at := e.Row.SubmittedAt
		if e.Submission != nil {
			at = e.Submission.SubmittedAt
		}
		if a.now.Sub(at) > plan.SubmitWithin { // as doer.submitShared
			refused++
			return plan.SbatchAnswer{Refused: true, Retry: true, Words: "Slurm is slow to take other submissions"}
		}
		return plan.SbatchAnswer{Job: sbatch.JobID(99 + len(a.submitted))}
	}
	s.pass(3 * time.Second)
	for _, e := range s.held {
		s.write(e)
	}
	s.held = nil
	s.pass(40 * time.Second)
	if refused > 0 {
		t.Errorf("%d submissions were refused by the bridge itself", refused)
	}
}

// A bound of one row bounds the submission that it joins.
func TestBoundOfALaterRowHolds(t *testing.T) {
	t.Parallel()
	rows := several("1", 0, 6)
	for i := range rows {
		if i == 5 {
			rows[i].MostTogether = 2
		}
	}
	a := newArrays(t, rows...)
	a.pass(2 * time.Second)
	if got := a.sizes(); got[0] > 5 {
		t.Errorf("sizes %v: a row that may go with one other went with five", got)
	}
}

// Two owners of a queue with few places share them.
func TestPlacesOfAQueueAreShared(t *testing.T) {
	t.Parallel()
	for _, tasks := range []int{0, 8} {
		a := newArrays(t, append(several("1", 0, 8), several("2", 20, 8)...)...)
		a.setQueue(func(q *plan.Queue) { q.ArrayTasks, q.MaxInFlight = tasks, 8 })
		a.pass(5 * time.Second)
		n := map[string]int{}
		for i, owner := range map[int]string{0: "1", 20: "2"} {
			for _, phase := range a.phases(i, 8) {
				if phase == plan.Queued {
					n[owner]++
				}
			}
		}
		if n["1"] != n["2"] {
			t.Errorf("array_tasks %d: places by owner %v", tasks, n)
		}
	}
}

// Everybody is killed while the sbatch waits for the pace.
func TestHeldSbatchOfNobodyIsNotRun(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 4)...)
	setPace(a, 0.5, 4)
	a.b.decider.pace.submits.AllowN(a.now, 0)
	s := &slowPrepare{arrays: a, written: map[string]int64{}, hold: func(plan.Effect) bool { return true }}
	s.pass(0)
	a.b.decider.pace.submits.AllowN(a.now, 4) // other submissions take all places
	for _, e := range s.held {
		s.write(e)
	}
	a.observe()
	a.step()
	if len(a.submitted) > 0 {
		t.Fatal("the submission was not held")
	}
	for i := range 4 {
		a.kill(i)
	}
	a.pass(8 * time.Second)
	if len(a.submitted) > 0 {
		t.Errorf("sbatch ran for %d killed bundles", len(a.submitted[0].Submission.Members))
	}
}
