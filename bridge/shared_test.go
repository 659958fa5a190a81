package bridge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestEqualBundlesOfAnOwnerGoAsArrays(t *testing.T) {
	t.Parallel()
	rows := several("1", 0, 10)
	rows[4].Resources.Memory++ // by one byte
	rows = append(rows, several("2", 20, 3)...)
	rows = append(rows, waiting("2", 23, func(r *plan.Row) { r.Attempt.Number = 1; r.OnDisk = "1-b1b2b3" }))
	a := newArrays(t, rows...)
	a.pass(2 * time.Second)
	a.want("tasks of the submissions", slices.Sorted(slices.Values(a.sizes())), []int{0, 0, 0, 3, 8})
	array, _, _ := a.row(0).Job.ID.ArrayTask()
	for i, row := range []int{0, 1, 2, 3, 5, 6, 7, 8} {
		a.want(fmt.Sprintf("the job of row %d", row), a.row(row).Job.ID, array.Task(i))
	}
	a.want("phases", append(a.phases(0, 10), a.phases(20, 4)...), all(14, plan.Queued))
	saved, err := a.book.Submissions(t.Context())
	if err != nil || len(saved) != 2 || saved[0].State != plan.Made || saved[0].Array != array || len(saved[0].Members) != 8 {
		t.Errorf("the ledger has %+v, %v", saved, err)
	}
	for i := range 3 {
		a.kill(20 + i)
	}
	a.jobs = nil
	a.pass(3 * time.Minute)
	if saved, err = a.book.Submissions(t.Context()); err != nil || len(saved) != 1 {
		t.Errorf("an array without rows in flight stays in the ledger: %+v, %v", saved, err)
	}
}

func TestKilledMemberIsFencedAndARepeatSubmitsTheSameList(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 5)...)
	a.answer = unclear
	a.pass(2 * time.Second)
	a.kill(2)
	a.pass(10 * time.Second)
	a.want("the killed one", a.row(2).Phase, plan.Finalizing) // its verdict does not wait for Slurm
	if !a.row(2).Fenced {
		t.Error("the killed member is not fenced")
	}
	a.want("the others", append(a.phases(0, 2), a.phases(3, 2)...), all(4, plan.Submitting))
	a.want("submissions", len(a.submitted), 1)
	a.pass(2 * time.Minute)
	if len(a.submitted) != 2 {
		t.Fatalf("%d submissions: want a repeat after the proof that there is no array", len(a.submitted))
	}
	first, second := a.submitted[0].Submission, a.submitted[1].Submission
	a.want("the list of the repeat", second.Members, first.Members)
	a.want("its name", second.Name, first.Name)
	a.answer = nil
	a.show(a.submitted[1], 7)
	a.pass(2 * time.Second)
	for i, want := range map[int]string{0: "7_0", 1: "7_1", 3: "7_3", 4: "7_4"} {
		a.want(fmt.Sprintf("the job of row %d", i), a.row(i).Job.ID.String(), want)
	}
	a.pass(20 * time.Second)
	a.want("cancelled", slices.Compact(a.cancelled), []sbatch.JobID{sbatch.JobID(7).Task(2)})
}

func TestArrayOfALostAnswerIsFoundByItsName(t *testing.T) {
	t.Parallel()
	for name, rewrite := range map[string]func(*sbatch.Job){
		"by its name":                   func(j *sbatch.Job) { j.Comment = "" },
		"by its comment, renamed":       func(j *sbatch.Job) { j.Name = "renamed" },
		"by the only task that is left": func(*sbatch.Job) {},
	} {
		a := newArrays(t, several("1", 0, 5)...)
		a.answer = unclear
		a.pass(2 * time.Second)
		a.show(a.submitted[0], 7)
		if name == "by the only task that is left" {
			a.jobs = a.jobs[3:4]
		}
		for i := range a.jobs {
			rewrite(&a.jobs[i])
		}
		a.pass(5 * time.Second)
		for i := range 5 {
			a.want(name+": job", a.row(i).Job.ID.String(), fmt.Sprint("7_", i))
		}
		a.pass(3 * time.Minute)
		a.want(name+": submissions", len(a.submitted), 1)
	}
}

func TestTaskBeginsFromEitherOfTwoArrays(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.answer = unclear
	a.pass(2 * time.Minute)
	if len(a.submitted) < 2 {
		t.Fatalf("%d submissions", len(a.submitted))
	}
	a.show(a.submitted[0], 7) // squeue had not shown the first one
	a.show(a.submitted[0], 8)
	a.pass(2 * time.Second)
	for i, want := range []string{"7_0", "7_1", "7_2"} {
		a.want("adopted", a.row(i).Job.ID.String(), want)
	}
	started := spool.Started{Token: "w", Node: "n1", Job: sbatch.JobID(8).Task(1).String(), At: a.now}
	a.b.inbox.put(a.row(1).Bundle, func(n *plan.News) {
		n.AddRecords(plan.Records{Attempt: 1, Read: a.now, Records: spool.Records{Started: &started}})
	})
	a.step()
	a.want("the job of the one that began", a.row(1).Job.ID.String(), "8_1")
	a.want("its phase", a.row(1).Phase, plan.Running)
	a.want("the others", []string{a.row(0).Job.ID.String(), a.row(2).Job.ID.String()}, []string{"7_0", "7_2"})
}

func TestMemberWithoutASpecificationIsLeftBehind(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 4)...)
	a.unprepared[a.row(1).Bundle] = true
	a.pass(5 * time.Second)
	a.want("submissions while the others wait for it", len(a.submitted), 0)
	a.pass(10 * time.Second)
	a.want("tasks of the submissions", a.sizes()[:1], []int{3})
	for i, want := range map[int]string{0: "100_0", 2: "100_1", 3: "100_2"} {
		a.want(fmt.Sprintf("the job of row %d", i), a.row(i).Job.ID.String(), want)
	}
	a.unprepared = nil
	a.pass(time.Minute)
	a.want("the one that was left behind", a.row(1).Job.ID.String(), "101")
	a.want("its attempt", a.row(1).Attempt.Number, 1)
}

// submission that it left: its worker refuses that one (--submission).
func TestLateSpecificationCountsForItsSubmissionAlone(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 4)...)
	s := &slowPrepare{arrays: a, written: map[string]int64{}}
	slow := a.row(1).Bundle
	s.hold = func(e plan.Effect) bool { return e.Row.Bundle == slow }
	s.pass(15 * time.Second)
	s.hold = func(plan.Effect) bool { return false }
	for _, e := range s.held {
		s.write(e) // the first disk write ends now
	}
	s.pass(15 * time.Second)
	for _, e := range a.submitted {
		rows := []string{e.Row.Bundle}
		generation := e.Row.Generation
		if e.Submission != nil {
			rows, generation = nil, e.Submission.Generation
			for _, m := range e.Submission.Members {
				rows = append(rows, m.Bundle)
			}
		}
		for _, b := range rows {
			if s.written[b] != generation {
				t.Errorf("bundle %s went to Slurm as --submission=%s.%d, and its spec.json is of %s.%d: its worker refuses it", b, a.policy.Bridge, generation, a.policy.Bridge, s.written[b])
			}
		}
	}
}

// Rows of one owner that the site's table bills to different accounts must not share an array.
func TestRowsOfOneAccountShareAnArray(t *testing.T) {
	t.Parallel()
	rows := several("1", 0, 4)
	for i := range rows {
		run := *rows[i].Run
		if run.OwnerGroups = []string{"phys"}; i >= 2 {
			run.OwnerGroups = []string{"chem"}
		}
		rows[i].Run = &run
	}
	a := newArrays(t, rows...)
	a.b.decider.rules.Policy.Map = []plan.Mapping{{Groups: []string{"phys"}, Billing: plan.Billing{Account: "phys"}}, {Groups: []string{"chem"}, Billing: plan.Billing{Account: "chem"}}}
	a.pass(2 * time.Second)
	for _, e := range a.submitted {
		if e.Submission == nil {
			continue
		}
		accounts := map[string]bool{}
		for _, m := range e.Submission.Members {
			accounts[a.b.decider.rules.Policy.Request(*a.b.decider.rows.get(m.Bundle)).Account] = true
		}
		if len(accounts) > 1 {
			t.Errorf("one array for rows of the accounts %v", accounts)
		}
	}
}

// A member whose records arrive whole before its array is known: its job shows that the array exists.
func TestEndedMemberShowsTheArray(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.answer = unclear
	a.pass(2 * time.Second)
	started := spool.Started{Token: "w", Node: "n1", Job: "7_1", Submission: a.policy.Submission(*a.row(1)), At: a.now}
	zero := 0
	exit := spool.Exit{Token: "w", Cause: spool.CauseSucceeded, ExitCode: &zero, At: a.now}
	a.b.inbox.put(a.row(1).Bundle, func(n *plan.News) {
		n.AddRecords(plan.Records{Attempt: 1, Read: a.now, Records: spool.Records{Started: &started, Exit: &exit}})
	})
	a.step()
	if got := a.row(0).Job.ID.String(); got != "7_0" {
		t.Errorf("row 0 has job %s, though row 1 ran in 7_1 of the same array", got)
	}
	a.pass(2 * time.Minute)
	if len(a.submitted) > 1 {
		t.Errorf("the array was submitted again: %v", a.sizes())
	}
}

// A member whose worker could not start its command is sent back in the decision that learns of its start: its job shows that the array,
// or the pack, exists.
func TestMemberThatIsSentBackShowsTheArray(t *testing.T) {
	t.Parallel()
	for job, a := range map[string]*arrays{"7_1": newArrays(t, several("1", 0, 3)...), "7": newPacks(t, several("1", 0, 3)...).arrays} {
		a.answer = unclear
		a.pass(2 * time.Second)
		started := spool.Started{Token: "w", Node: "n1", Job: job, Submission: a.policy.Submission(*a.row(1)), At: a.now}
		exit := spool.Exit{Token: "w", Cause: spool.CausePlatform, NotStarted: true, Failure: "No user namespaces on this node.", At: a.now}
		a.b.inbox.put(a.row(1).Bundle, func(n *plan.News) {
			n.AddRecords(plan.Records{Attempt: 1, Read: a.now, Records: spool.Records{Started: &started, Exit: &exit}})
		})
		a.step()
		a.want("row 1", a.row(1).Phase, plan.Staging)
		want := "7_0"
		if job == "7" {
			want = "7"
		}
		if got := a.row(0).Job.ID.String(); got != want {
			t.Errorf("row 0 has job %s, though row 1 began in %s of the same submission", got, job)
		}
		if saved, err := a.book.Submissions(t.Context()); err != nil || len(saved) != 1 || saved[0].Begun != saved[0].Pack {
			t.Errorf("the ledger has %+v, %v; want that the pack has begun a member", saved, err)
		}
	}
}

// A bridge with an older copy of its ledger submits an attempt again that a task of another array has begun. That task shows nothing
// of the new array, whose other members have tasks of their own.
func TestMemberThatAnotherArrayBeganShowsNothingOfThisOne(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.answer = unclear
	a.pass(2 * time.Second)
	started := spool.Started{Token: "w", Node: "n1", Job: "7_1", Submission: "b1b2b3.900", At: a.now}
	a.b.inbox.put(a.row(1).Bundle, func(n *plan.News) {
		n.AddRecords(plan.Records{Attempt: 1, Read: a.now, Records: spool.Records{Started: &started}})
	})
	a.pass(2 * time.Second)
	if r := a.row(1); r.Phase != plan.Running || r.Job.ID.String() != "7_1" {
		t.Errorf("row 1 is %s with job %s, want running in 7_1", r.Phase, r.Job.ID)
	}
	for _, i := range []int{0, 2} {
		if r := a.row(i); r.Job.ID != 0 {
			t.Errorf("row %d is %s with job %s of another array", i, r.Phase, r.Job.ID)
		}
	}
}
