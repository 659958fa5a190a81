package bridge

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// While specifications are being written, the end of one must not cost a look at all members: thousands end one by one.
func TestSpecificationsOfAnArrayAreCountedOneByOne(t *testing.T) {
	t.Parallel()
	const n = 200
	rows := several("1", 0, n)
	a := newArrays(t, rows...)
	a.setQueue(func(q *plan.Queue) { q.ArrayTasks = n })
	prepares := a.wanted()
	a.want("specifications to be written", len(prepares), n)
	name := a.row(0).SubmissionName
	members := a.b.decider.rows.shared[name]
	members["0xnobody"] = &entry{} // a look at all members panics
	for i, e := range prepares {
		if i == n-1 {
			delete(members, "0xnobody")
		}
		a.do(e)
		if wanted := a.wanted(); i < n-1 && len(wanted) > 0 {
			t.Fatalf("after %d of %d specifications: %v", i+1, n, plan.KindsOf(wanted))
		} else if i == n-1 {
			a.want("after the last one", plan.KindsOf(wanted), []plan.Kind{plan.Submit})
			a.want("members", len(wanted[0].Submission.Members), n)
			for place, m := range wanted[0].Submission.Members {
				a.want("member", m.Bundle, rows[place].Bundle)
			}
		}
	}
}

// The number of members whose specifications are being written follows the rows through whatever becomes of them.
func TestPreparingMembersAreCounted(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 6)...)
	a.unprepared[a.row(0).Bundle], a.unprepared[a.row(1).Bundle] = true, true
	check := func() {
		t.Helper()
		count := map[plan.SubmissionName]int{}
		for name, members := range a.b.decider.rows.shared {
			for _, e := range members {
				if e.row.PreparesShared() {
					count[name]++
				}
			}
		}
		a.want("preparing", a.b.decider.rows.preparing, count)
	}
	for second := range 60 {
		switch second {
		case 3:
			a.kill(0)
		case 5:
			a.kill(2)
		case 20:
			a.unprepared = nil
		case 40:
			a.start()
		}
		a.pass(0)
		check()
	}
	a.want("the one that was late", a.row(1).Phase, plan.Queued)
	a.pass(time.Minute)
	check()
}
