package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// After sbatch has printed a job's id the site may rewrite the job's name and comment. The time at which the
// controller accepted the job distinguishes it from another job with that id.
func TestI2JobIsKnownByItsIDUnderAnyName(t *testing.T) {
	t.Parallel()
	site := func(submitted time.Duration) sbatch.Job {
		j := job(sbatch.StateRunning)
		j.Name, j.Comment, j.Submitted = "site-4711", "checked", epoch.Add(submitted)
		return j
	}
	unseen := rowIn(plan.Queued) // by any snapshot
	unseen.Job.Submitted = time.Time{}
	known := rowIn(plan.Queued)
	known.Job.Submitted = epoch.Add(2 * time.Second)
	begun := rowIn(plan.Running)
	begun.SubmittedAt = epoch.Add(10 * time.Minute) // the second sbatch; the first one's job began
	member := rowIn(plan.Running)                   // of a pack, which began after others
	member.Shared, member.Pack, member.Job.Submitted = true, true, epoch.Add(2*time.Second)
	member.Begun.At = epoch.Add(8 * time.Minute)
	elsewhere := member
	onN2 := *member.Begun
	onN2.Node = "n2"
	elsewhere.Begun = &onN2
	other := member // began in the job of an sbatch without an answer, which no snapshot has shown for it
	other.Job.Submitted = time.Time{}
	for name, c := range map[string]struct {
		row       plan.Row
		submitted time.Duration
		own       bool
	}{
		"taken when sbatch ran":                       {unseen, 2 * time.Second, true},
		"by a clock that is behind":                   {unseen, -50 * time.Second, true},
		"taken when the job was taken":                {known, 2 * time.Second, true},
		"taken before the attempt began":              {begun, 0, true},
		"an old job, which a wrapper's number names":  {unseen, -2 * time.Minute, false},
		"a later job, of a controller that forgot it": {unseen, 5 * time.Minute, false},
		"a job a second later":                        {known, 3 * time.Second, false},
		"taken after the attempt began":               {begun, 5 * time.Minute, false},
		"an earlier job of the id of one that began":  {begun, -time.Hour, false},
		"requeued before the attempt began":           {begun, time.Second, true},
		"a pack, renamed while its member runs":       {member, 2 * time.Second, true},
		"a pack, renamed and put back before that":    {member, 5 * time.Minute, true},
		"the pack of an sbatch without an answer":     {other, -2 * time.Minute, true},
		"a later job, not on the node of the member":  {elsewhere, 5 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := 11 * time.Minute
			b := given(t, c.row).at(at).decide(seen(at, site(c.submitted)))
			if kept := b.row.NoJobSince.IsZero() && b.row.Job.Name == "site-4711"; kept != c.own {
				t.Errorf("taken for its own: %v; job %+v, none since %v", kept, b.row.Job, b.row.NoJobSince)
			}
		})
	}
	t.Run("it ends under that name", func(t *testing.T) {
		t.Parallel()
		over := site(2 * time.Second)
		over.State = sbatch.StateTimeout
		b := given(t, known).at(late).decide(seen(late, site(2*time.Second))).is(plan.Queued, plan.ReadRecords)
		b.at(late+time.Second).decide(seen(late+time.Second, over)).is(plan.Queued, plan.ReadRecords)
		if b.row.Job.State != sbatch.StateTimeout {
			t.Errorf("its job: %+v", b.row.Job)
		}
	})
}

func TestI10AccountThatIsGoneStopsNoJob(t *testing.T) {
	t.Parallel()
	gone := job(sbatch.StatePending)
	gone.Reason = "InvalidAccount"
	b := given(t, rowIn(plan.Queued)).at(early).decide(seen(early, gone)).is(plan.Queued)
	b.at(20 * time.Hour).decide(seen(20*time.Hour, gone)).is(plan.Queued)
	back := job(sbatch.StatePending)
	back.Reason = "Priority"
	b.at(21 * time.Hour).decide(seen(21*time.Hour, back)).is(plan.Queued)
	b.at(22 * time.Hour).decide(seen(22*time.Hour, gone)).is(plan.Queued)
	b.at(47*time.Hour).decide(seen(47*time.Hour, gone)).is(plan.Stopping, plan.Cancel, plan.Fence)
}

// A controller that has lost its state reuses ids, and sacct also shows the older jobs of an id.
func TestI2OlderJobOfTheSameIDIsAnothers(t *testing.T) {
	t.Parallel()
	j, older := job(sbatch.StateFailed), job(sbatch.StateOutOfMemory)
	older.Submitted = epoch.Add(-10 * time.Minute)
	older.Name, older.Comment = strings.Replace(j.Name, ".1-", ".1-9", 1), ""
	b := given(t, rowIn(plan.Running), func(r *plan.Row) {
		begun := *started()
		begun.At = epoch.Add(time.Minute)
		r.Begun, r.Exit = &begun, nil
	})
	b.at(2 * time.Minute).decide(seen(2*time.Minute, j))
	b.at(3*time.Minute).decide(read(3*time.Minute, b.row.Begun, nil)).is(plan.Running, plan.QueryAccounting)
	j.Exit, j.Comment = "3:0", ""
	b.decide(plan.News{Accounting: observation(3*time.Minute, older, j)}).is(plan.Collecting, plan.Collect)
	b.verdict(spool.CausePlatform, "Exit code 3, as Slurm shows it")
}

// A controller that has lost its state gives out the numbers of arrays again, too. The comment of a task names no bundle: the started
// record tells of which submission the task was that began the attempt.
func TestI2TaskOfAnotherArrayOfTheSameNumberIsAnothers(t *testing.T) {
	t.Parallel()
	task := func(generation int, state sbatch.State) sbatch.Job {
		j := job(state)
		j.ID, j.Exit = sbatch.JobID(7).Task(1), "0:0"
		j.Comment = fmt.Sprintf("codalab tasks=2 owner=1 bridge=b1b2b3 generation=%d", generation)
		return j
	}
	for name, c := range map[string]struct {
		began string // the submission of the task that began the attempt
		shown int    // the generation of the task that squeue shows
		own   bool
	}{
		"its own":          {"b1b2b3.1", 1, true},
		"of a later array": {"b1b2b3.1", 2, false},
		"of an array that the ledger does not know":  {"b1b2b3.9", 9, true},
		"of its own submission, which did not begin": {"b1b2b3.9", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := given(t, rowIn(plan.Running), func(r *plan.Row) {
				r.Shared, r.Index, r.Job, r.Exit = true, 1, task(1, sbatch.StateRunning), nil
				r.Begun = &spool.Started{Token: "token-1", Node: "n1", Job: "7_1", Submission: c.began, At: epoch}
			})
			b.at(late).decide(seen(late, task(c.shown, sbatch.StateCompleted)))
			if own := b.row.Job.State == sbatch.StateCompleted; own != c.own {
				t.Errorf("taken for its own: %t; job %+v", own, b.row.Job)
			}
		})
	}
}

// An answer of sbatch is lost, and so is the controller's state: it gives the pack's number to another job. The listing in which the pack was
// found by its name tells all members when Slurm accepted it, so that none of them takes the other job, however close to the last sbatch it is.
func TestI2MembersOfAFoundPackTakeNoLaterJobOfItsNumber(t *testing.T) {
	t.Parallel()
	pack := job(sbatch.StateNodeFail)
	pack.Comment, pack.Submitted = "codalab pack=1 owner=1 bridge=b1b2b3 generation=1", epoch
	row := rowIn(plan.Submitting)
	row.Shared, row.Pack, row.Generation, row.SubmittedAt = true, true, 1, epoch.Add(3*time.Minute)
	asked := plan.Submission{
		Name: row.SubmissionName, Generation: 1, Queue: row.Queue, State: plan.Asked, Pack: true, SubmittedAt: row.SubmittedAt,
		Members: []plan.Member{{Bundle: row.Bundle, Name: row.OnDisk}}, Asking: plan.Asking{SbatchCount: 2},
	}
	p := policy()
	found, _ := p.NextSubmission(epoch.Add(5*time.Minute), asked, []*plan.Row{&row}, plan.SubmissionNews{Accounting: observation(5*time.Minute, pack)})
	if found.State != plan.Made || found.Array != pack.ID || !found.Accepted.Equal(epoch) {
		t.Fatalf("found as %+v", found)
	}
	other := job(sbatch.StateRunning)
	other.Name, other.Comment, other.Submitted = "interactive", "", epoch.Add(4*time.Minute)
	for name, stopped := range map[string]*plan.Verdict{"it waits": nil, "it is killed": {Cause: spool.CauseUser, Failure: codalab.KillRequested}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place := found.PlaceOf(&row, map[string]int{row.Bundle: 0})
			b := given(t, row, func(r *plan.Row) { r.StopVerdict = stopped }).at(5 * time.Minute).decide(plan.News{Submission: &place})
			if b.row.Job.ID != pack.ID {
				t.Fatalf("its job: %+v", b.row.Job)
			}
			b.at(20 * time.Minute).decide(seen(20*time.Minute, other))
			if b.row.NoJobSince.IsZero() || b.row.Job.Name == other.Name {
				t.Errorf("its job: %+v, none since %v", b.row.Job, b.row.NoJobSince)
			}
		})
	}
}
