package plan_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// orphanJob returns a job of the tests' bridge with this generation.
func orphanJob(id sbatch.JobID, generation int64, change ...func(*sbatch.Job)) sbatch.Job {
	j := sbatch.Job{
		ID: id, Name: string(submission), State: sbatch.StateRunning, Nodes: "n1", Submitted: epoch,
		Comment: fmt.Sprintf("codalab bundle=%s attempt=1 owner=1 bridge=b1b2b3 generation=%d", uuid, generation),
	}
	for _, c := range change {
		c(&j)
	}
	return j
}

func none(string) *plan.Row { return nil }

// running returns a row whose attempt 1 is the submission of this generation.
func running(generation int64) func(string) *plan.Row {
	row := rowIn(plan.Running)
	row.Generation, row.Begun = generation, nil
	return plan.ByBundle([]plan.Row{row})
}

// findOrphans searches for orphans at a time after epoch, with a ledger whose last submission is the tenth.
func findOrphans(t *testing.T, at time.Duration, row func(string) *plan.Row, before plan.OrphanJobs, jobs ...sbatch.Job) (plan.OrphanJobs, []sbatch.Job) {
	t.Helper()
	found, overdue, err := policy().OrphanJobs(epoch.Add(at), sbatch.Snapshot{Asked: epoch.Add(at), Jobs: jobs}, row, noTask, 10, before)
	if err != nil {
		t.Fatal(err)
	}
	return found, overdue
}

func TestI5LiveJobWithoutARowIsCancelledAfterAGrace(t *testing.T) {
	t.Parallel()
	first := plan.OrphanJobs{3: epoch}
	found, overdue := findOrphans(t, 0, none, nil, orphanJob(3, 10))
	if diff := cmp.Diff(first, found); diff != "" || overdue != nil {
		t.Errorf("overdue %v, orphans (-want +got):\n%s", overdue, diff)
	}
	found, overdue = findOrphans(t, 5*time.Minute-time.Second, none, found, orphanJob(3, 10))
	if diff := cmp.Diff(first, found); diff != "" || overdue != nil {
		t.Errorf("within the grace: overdue %v, orphans (-want +got):\n%s", overdue, diff)
	}
	found, overdue = findOrphans(t, 5*time.Minute, none, found, orphanJob(3, 10), orphanJob(4, 9))
	if diff := cmp.Diff([]sbatch.Job{orphanJob(3, 10)}, overdue); diff != "" {
		t.Errorf("after the grace, overdue (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(plan.OrphanJobs{3: epoch, 4: epoch.Add(5 * time.Minute)}, found); diff != "" {
		t.Errorf("orphans (-want +got):\n%s", diff)
	}
	// It stays overdue while it lives, because scancel may fail.
	if _, overdue = findOrphans(t, time.Hour, none, found, orphanJob(3, 10)); len(overdue) != 1 {
		t.Errorf("overdue %v, want job 3 still", overdue)
	}
}

func TestI5OrphanJobThatWentAwayBeginsAgain(t *testing.T) {
	t.Parallel()
	found, _ := findOrphans(t, time.Minute, none, plan.OrphanJobs{3: epoch})
	if len(found) != 0 {
		t.Fatalf("orphans %v, want none", found)
	}
	if _, overdue := findOrphans(t, time.Hour, none, found, orphanJob(3, 10)); overdue != nil {
		t.Errorf("cancelled at its first sight: %v", overdue)
	}
}

func TestI5GraceIsNotCutShortByAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	found, overdue := findOrphans(t, -time.Hour, none, plan.OrphanJobs{3: epoch}, orphanJob(3, 10))
	if overdue != nil || found[3] != epoch.Add(-time.Hour) {
		t.Errorf("overdue %v, since %s, want it to count from now", overdue, found[3])
	}
}

func TestI5NobodyElsesJobIsTouched(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*sbatch.Job){
		"another bridge's":        func(j *sbatch.Job) { j.Comment = "codalab bundle=0x1 attempt=1 owner=1 bridge=ffffff generation=99" },
		"a rewritten comment":     func(j *sbatch.Job) { j.Comment = "charge=1234" },
		"no comment":              func(j *sbatch.Job) { j.Comment = "" },
		"a cut comment":           func(j *sbatch.Job) { j.Comment = "codalab bundle=0x1 attempt=1 owner=1 bridge=b1b2b3" },
		"a broken number":         func(j *sbatch.Job) { j.Comment = "codalab bridge=b1b2b3 generation=ten" },
		"a sentence":              func(j *sbatch.Job) { j.Comment = "see codalab bridge=b1b2b3 generation=1" },
		"one that has ended":      func(j *sbatch.Job) { j.State = sbatch.StateCompleted },
		"an older one that ended": func(j *sbatch.Job) { *j = orphanJob(2, 1); j.State = sbatch.StateCancelled },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, overdue := findOrphans(t, time.Hour, none, plan.OrphanJobs{3: epoch}, orphanJob(3, 10, change))
			if len(found) != 0 || overdue != nil {
				t.Errorf("orphans %v, overdue %v, want none", found, overdue)
			}
		})
	}
}

func TestI5JobInAnUnknownStateLives(t *testing.T) {
	t.Parallel()
	hibernating := orphanJob(3, 10, func(j *sbatch.Job) { j.State = "HIBERNATING" })
	if _, overdue := findOrphans(t, time.Hour, none, plan.OrphanJobs{3: epoch}, hibernating); len(overdue) != 1 {
		t.Errorf("overdue %v, want job 3", overdue)
	}
}

// A row's job is no orphan, even if an administrator has renamed it.
func TestI5RowsJobIsNoOrphan(t *testing.T) {
	t.Parallel()
	rows := running(10)
	renamed := orphanJob(3, 10, func(j *sbatch.Job) { j.Name = "urgent" })
	for _, j := range []sbatch.Job{orphanJob(3, 10), renamed} {
		if found, _ := findOrphans(t, time.Hour, rows, plan.OrphanJobs{3: epoch}, j); len(found) != 0 {
			t.Errorf("job %q is an orphan since %s", j.Name, found[3])
		}
	}
	// Its bundle's other submissions have no row, even under its name.
	if found, _ := findOrphans(t, time.Hour, rows, nil, orphanJob(3, 9)); len(found) != 1 {
		t.Error("another submission's job counts as the row's")
	}
}

func TestI5DryRunOnlyTells(t *testing.T) {
	t.Parallel()
	p := policy()
	p.CancelOrphans = false
	found, overdue, err := p.OrphanJobs(epoch.Add(time.Hour), sbatch.Snapshot{Jobs: []sbatch.Job{orphanJob(3, 10)}}, none, noTask, 10, plan.OrphanJobs{3: epoch})
	if err != nil || len(found) != 1 || overdue != nil {
		t.Errorf("orphans %v, overdue %v, error %v, want one orphan that is left alone", found, overdue, err)
	}
}

func TestI5OldLedgerTouchesNothing(t *testing.T) {
	t.Parallel()
	before := plan.OrphanJobs{3: epoch}
	for name, newer := range map[string]sbatch.Job{
		"a live job":      orphanJob(9, 11),
		"one that ended":  orphanJob(9, 11, func(j *sbatch.Job) { j.State = sbatch.StateCompleted }),
		"an unknown one":  orphanJob(9, 11, func(j *sbatch.Job) { j.State = "HIBERNATING" }),
		"far in the past": orphanJob(9, 1<<40),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobs := []sbatch.Job{orphanJob(3, 10), newer}
			found, overdue, err := policy().OrphanJobs(epoch.Add(time.Hour), sbatch.Snapshot{Jobs: jobs}, none, noTask, 10, before)
			if !errors.Is(err, plan.ErrOutdated) || overdue != nil {
				t.Errorf("error %v, overdue %v, want that the ledger is outdated and nothing else", err, overdue)
			}
			if diff := cmp.Diff(before, found); diff != "" {
				t.Errorf("what was known of orphans is lost (-want +got):\n%s", diff)
			}
		})
	}
}

// The bundle's row may have its newer job from a record. A bridge that went on would give the job's number, and
// so the job's name, to another submission (SEED=219790).
func TestI5NewerJobOfARowShowsAnOldLedgerToo(t *testing.T) {
	t.Parallel()
	row := rowIn(plan.Running)
	row.Generation, row.Begun.Job = 10, "9"
	_, _, err := policy().OrphanJobs(epoch.Add(time.Hour), sbatch.Snapshot{Jobs: []sbatch.Job{orphanJob(9, 11)}}, plan.ByBundle([]plan.Row{row}), noTask, 10, nil)
	if !errors.Is(err, plan.ErrOutdated) {
		t.Errorf("error %v, want that the ledger is outdated", err)
	}
}

// TestI5JobOfABundleThatWaitsIsItsRows: after the operator accepted an old copy of the ledger, a row takes up its
// running job; the bridge neither cancels nor submits it again.
func TestI5JobOfABundleThatWaitsIsItsRows(t *testing.T) {
	t.Parallel()
	j := orphanJob(3, 9)
	waits := rowIn(plan.Staging)
	_, overdue, err := policy().OrphanJobs(epoch.Add(time.Hour), sbatch.Snapshot{Jobs: []sbatch.Job{j}}, plan.ByBundle([]plan.Row{waits}), noTask, 10, plan.OrphanJobs{3: epoch})
	if err != nil || len(overdue) != 0 {
		t.Errorf("overdue %v, %v", overdue, err)
	}
	stamp := plan.Stamp{Bundle: uuid, Attempt: 2, Bridge: "b1b2b3", Generation: 9, OnDisk: "2-b1b2b3"}
	for _, staged := range []bool{true, false} {
		row := rowIn(plan.Staging)
		if !staged {
			row.Staged = nil
		}
		row.Attempt.Number = 1
		b := given(t, row).decide(plan.News{Found: &plan.Found{Stamp: stamp, Job: j}}).is(plan.Queued, plan.ReadRecords)
		if b.row.Attempt.Number != 2 || b.row.Generation != 9 || b.row.OnDisk != stamp.OnDisk || b.row.Job.ID != 3 || b.row.SubmissionName == "" || !b.row.Prepared {
			t.Errorf("row %+v", b.row)
		}
	}
	old := rowIn(plan.Staging)
	old.Attempt.Number, old.Staged = 2, nil
	given(t, old).decide(plan.News{Found: &plan.Found{Stamp: stamp, Job: j}}).is(plan.Staging, plan.Stage)
	killed := rowIn(plan.Staging)
	killed.StopVerdict = &plan.Verdict{Cause: spool.CauseUser, Failure: codalab.KillRequested}
	given(t, killed).decide(plan.News{Found: &plan.Found{Stamp: stamp, Job: j}}).is(plan.Stopping, plan.ReadRecords, plan.Cancel, plan.Fence)
}

// noTask has no arrays.
func noTask(int64, sbatch.JobID) bool { return false }
