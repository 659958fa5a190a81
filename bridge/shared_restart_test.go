package bridge

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// TestArraySurvivesACrashBetweenAnyTwoLines crashes after each save.
func TestArraySurvivesACrashBetweenAnyTwoLines(t *testing.T) {
	t.Parallel()
	for crashAt := range 12 {
		a := newArrays(t, several("1", 0, 4)...)
		made := map[sbatch.JobID]bool{}
		a.answer = func(int) plan.SbatchAnswer {
			id := sbatch.JobID(50 + len(a.submitted))
			made[id] = true
			a.show(a.submitted[len(a.submitted)-1], id)
			return plan.SbatchAnswer{Job: id}
		}
		a.passWithACrash(4*time.Minute, crashAt)
		for i := range 4 {
			if r := a.row(i); r.Phase != plan.Queued || r.Attempt.Number != 1 || r.Job.ID.String() != fmt.Sprintf("%d_%d", 50+len(a.submitted), i) {
				t.Errorf("crash at %d: row %d is %s with job %s, attempt %d (%s)", crashAt, i, r.Phase, r.Job.ID, r.Attempt.Number, r.Reason)
			}
		}
		if len(made) != 1 {
			t.Errorf("crash at %d: %d arrays were made", crashAt, len(made))
		}
	}
}

func TestOrphanTasksAreJudgedOneByOne(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.pass(2 * time.Second)
	a.show(a.submitted[0], 100)
	a.show(a.submitted[0], 99) // of the same submission
	stray := a.jobs[0]
	stray.ID = sbatch.JobID(98).Task(7) // no member has this place
	a.jobs = append(a.jobs, stray)
	a.pass(a.policy.OrphanGrace + 30*time.Second)
	a.want("cancelled", slices.Compact(a.cancelled), []sbatch.JobID{sbatch.JobID(98).Task(7)})
}

func TestLedgerThatIsOlderThanAnArrayStopsTheBridge(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.jobs = []sbatch.Job{{ID: sbatch.JobID(9).Task(0), Name: "cl-x", Comment: "codalab tasks=3 owner=1 bridge=b1b2b3 generation=900", State: sbatch.StatePending}}
	a.observe()
	if _, _, err := a.b.Step(t.Context(), a.now); !errors.Is(err, plan.ErrOutdated) {
		t.Errorf("Step: %v", err)
	}
}

// A row whose submission the ledger lost is fenced before it goes again.
func TestMembersOfALostSubmissionAreFenced(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.answer = unclear
	a.pass(2 * time.Second)
	saved, err := a.book.Submissions(t.Context())
	if err != nil || len(saved) != 1 {
		t.Fatal(saved, err)
	}
	saved[0].State = plan.Over
	if err := a.book.Save(t.Context(), nil, saved...); err != nil {
		t.Fatal(err)
	}
	a.answer = nil
	a.start()
	a.pass(5 * time.Second)
	if a.row(0).Attempt.Number == 1 && len(a.submitted) > 1 {
		t.Errorf("row 0 was submitted again as attempt 1 without a fence, although sbatch may have made an array")
	}
}

// After a restart, killed members that are done sleep; their submission must not be forgotten before they wake.
func TestSubmissionOfSleepingMembersIsKept(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	a.b.decider.rules.Policy.CancelOrphans = false
	a.policy.CancelOrphans = false
	a.answer = unclear
	a.pass(2 * time.Second)
	for i := range 3 {
		a.kill(i)
	}
	a.pass(5 * time.Second)
	for i := range 3 {
		a.b.inbox.put(a.row(i).Bundle, func(n *plan.News) { n.Messages = []codalab.Message{{Type: codalab.MessageMarkFinalized}} })
	}
	a.pass(time.Second)
	a.start()
	a.pass(time.Second)
	saved, err := a.book.Submissions(t.Context())
	if err != nil || len(saved) != 1 {
		t.Errorf("the submission is lost %d s after the sbatch without an answer: %v %v", 9, saved, err)
	}
	a.show(a.submitted[0], 7) // sbatch had made it
	a.pass(20 * time.Second)
	if len(a.cancelled) == 0 {
		t.Errorf("the array of three killed bundles is never cancelled (cancel_strays = false)")
	}
}

// passWithRecords is pass with a disk that is read.
func passWithRecords(t *testing.T, a *arrays, d time.Duration) {
	t.Helper()
	a.passWith(d, func(e plan.Effect) {
		if e.Kind != plan.ReadRecords {
			a.do(e)
			return
		}
		rec := plan.Records{Attempt: e.Row.Attempt.Number, Read: a.now}
		if s, ok := a.begun[e.Row.Bundle]; ok {
			rec.Started = &s
		}
		a.b.inbox.putEnded(e, func(*plan.Row) func(*plan.News) { return func(n *plan.News) { n.AddRecords(rec) } })
	})
}

// The ledger was restored from an older copy (recover): a member's attempt directory has the start of an earlier job of the bundle, which runs.
// The row follows that job (followJob), and must not take it for foreign because its index is another one, or because it is a single job.
func TestI4RowFollowsTheTaskThatBeganIt(t *testing.T) {
	t.Parallel()
	for _, old := range []sbatch.JobID{sbatch.JobID(55).Task(0), sbatch.JobID(55).Task(3), 55} /* the first one is the control */ {
		a := newArrays(t, append(several("1", 0, 4), waiting("0", 9))...)
		a.setQueue(func(q *plan.Queue) { q.RetryBegun = plan.RetryOnPlatform })
		passWithRecords(t, a, 2*time.Second)
		r := a.row(0)
		s := spool.Started{Token: "w", Node: "n1", Job: old.String(), Submission: "b1b2b3.1", At: a.now}
		comment := "codalab tasks=5 owner=1 bridge=b1b2b3 generation=1"
		if old == 55 {
			s.Submission, comment = "", "codalab bundle="+r.Bundle+" attempt=1 owner=1 bridge=b1b2b3 generation=1 dir=1-b1b2b3"
		}
		a.begun[r.Bundle] = s
		a.jobs = append(a.jobs, sbatch.Job{ID: old, Name: "cl-old", Comment: comment, State: sbatch.StateRunning, Nodes: "n1", Submitted: a.now.Add(-time.Minute)})
		for _, e := range a.submitted {
			if e.Submission != nil {
				a.show(e, r.Job.ID&(1<<32-1))
			}
		}
		a.b.inbox.put(r.Bundle, func(n *plan.News) {
			n.AddRecords(plan.Records{Attempt: 1, Read: a.now, Records: spool.Records{Started: &s}})
		})
		passWithRecords(t, a, 4*time.Minute)
		r = a.row(0)
		if r.Phase != plan.Running || r.Attempt.Number != 1 {
			t.Errorf("job %s runs the bundle, and its row is %s at attempt %d with job %s (last failure %q); submissions %v", old, r.Phase, r.Attempt.Number, r.Job.ID, r.LastFailure, a.sizes())
		}
	}
}

type membersDisk struct {
	Spool
	disk spool.Disk
}

func (m membersDisk) Members(of func(string) bool) ([]spool.Members, error) {
	return m.disk.Members(of)
}

func (m membersDisk) MembersFiles() ([]spool.MembersFile, error) { return m.disk.MembersFiles() }

func (m membersDisk) RemoveMembers(f spool.MembersFile) error { return m.disk.RemoveMembers(f) }

// A bridge on an old copy of its ledger removes nothing before it has seen Slurm (plan.ErrOutdated): the list of generation 900 is that of
// an array that waits in Slurm.
func TestListsOfLaterArraysAreKept(t *testing.T) {
	t.Parallel()
	a := newArrays(t, several("1", 0, 3)...)
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/spool", 0o700); err != nil {
		t.Fatal(err)
	}
	disk := spool.Disk{Layout: spool.Layout(dir)}
	m := spool.Members{Submission: "b1b2b3.900", Attempts: []spool.Member{{Bundle: "0x1", Name: "1-b1b2b3"}}}
	if err := disk.WriteMembers(m); err != nil {
		t.Fatal(err)
	}
	w := memberWatch{contact: &a.b.contact, stray: &a.b.stray, spool: membersDisk{disk: disk}, inForce: &a.b.inForce, view: &a.b.board.view, now: time.Now}
	if err := w.remove(a.now); err != nil { // memberWatch.run does it at once, before the first snapshot
		t.Fatal(err)
	}
	if _, err := os.Stat(disk.Layout.MembersPath(m.Name())); err != nil {
		t.Errorf("removed: %v", err)
	}
}
