package plan_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestI3AbsenceCountsOnlyInACompleteSnapshotOlderThanTheGrace(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Submitting)).at(early).decide(seen(early)).is(plan.Submitting)
	// The time of the question counts, not the time of its decision.
	b.at(late).decide(seen(early)).is(plan.Submitting)
	// Then the accounting is asked, and an answer to an earlier question does not count.
	b.decide(seen(late)).is(plan.Submitting, plan.QueryAccounting)
	b.at(late+time.Second).decide(accounted(early)).is(plan.Submitting, plan.QueryAccounting)
	b.decide(accounted(late+time.Second)).is(plan.Submitting, plan.Submit)
	if b.row.SubmittedAt != b.now || b.row.Attempt.Number != 1 || b.row.SubmissionName != submission {
		t.Errorf("submitted at %s as attempt %d under %s, want now, the same attempt and name", b.row.SubmittedAt, b.row.Attempt.Number, b.row.SubmissionName)
	}
	// The proof was for the last submission only.
	b.at(late + time.Minute).decide(seen(late + time.Minute)).is(plan.Submitting)
}

func TestI3AbsenceWithoutAccounting(t *testing.T) {
	t.Parallel()
	without := func(b *bench) *bench { b.policy.Accounting = false; return b }
	// While Slurm is certain to show ended jobs, a snapshot is enough.
	without(given(t, rowIn(plan.Submitting))).at(late).decide(seen(late)).is(plan.Submitting, plan.Submit)
	// After that nothing proves it, and the attempt is fenced.
	old := 10 * time.Minute
	b := without(given(t, rowIn(plan.Submitting))).at(old).decide(seen(old)).is(plan.Submitting, plan.Fence)
	b.decide(plan.News{Fenced: &plan.Fencing{Attempt: 1, Failure: "input/output error"}}).is(plan.Submitting)
	b.at(old+2*time.Second).decide(plan.News{}).is(plan.Submitting, plan.Fence)
	begun := *b
	begun.decide(fencing(*started())).is(plan.Running)
	b.decide(fencing(spool.Started{Fenced: true, Token: "ours"})).is(plan.Staging)
}

func TestI3NoAnswerIsNoChange(t *testing.T) {
	t.Parallel()
	month := 30 * 24 * time.Hour
	for _, phase := range []plan.Phase{plan.Submitting, plan.Queued, plan.Running} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			b := given(t, rowIn(phase))
			b.at(month).decide(plan.News{RecordsFailure: "stale file handle", AccountingFailure: "connection refused"}).is(phase)
			// With accounting, a snapshot alone is half an answer.
			b.decide(seen(month))
			for i := range 200 {
				b.at(month + time.Duration(i)*time.Minute).decide(plan.News{AccountingFailure: "connection refused"})
				b.decide(read(month+time.Duration(i)*time.Minute, nil, nil))
			}
			if b.row.Phase != phase {
				t.Errorf("row went to %s (%s) without an answer of the accounting", b.row.Phase, b.row.Reason)
			}
		})
	}
	t.Run("missing spool", func(t *testing.T) {
		t.Parallel()
		b := given(t, rowIn(plan.Running)).at(late).decide(seen(late, job(sbatch.StateNodeFail)))
		for i := range 200 {
			b.at(late + time.Duration(i)*time.Minute).decide(plan.News{RecordsFailure: "find the shared disk: no such file"})
		}
		b.is(plan.Running)
		// Then the disk is back, with the end on it.
		b.decide(read(late+200*time.Minute, started(), exit(0))).is(plan.Collecting, plan.Collect)
	})
}

// Snapshots do not show a running job for a while, and then they show that it has ended. The records that were
// read between the two do not show its end (SEED=2072869).
func TestI3RecordsAreReadAfterTheEndOfAJobThatWasHidden(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Running)).at(late).decide(seen(late)).is(plan.Running, plan.ReadRecords)
	b.decide(read(late, started(), nil)).is(plan.Running)
	b.at(late+time.Minute).decide(read(late+time.Minute, started(), nil)).is(plan.Running, plan.QueryAccounting)
	b.decide(accounted(late+time.Minute, job(sbatch.StateRunning))).is(plan.Running)
	ended := late + 2*time.Minute
	b.at(ended).decide(seen(ended, job(sbatch.StateCompleted))).is(plan.Running, plan.ReadRecords)
	b.decide(read(ended, started(), exit(0))).is(plan.Collecting, plan.Collect)
	if v := b.row.Verdict; v.Cause != spool.CauseSucceeded {
		t.Errorf("the verdict is %+v", v)
	}
}

// The database may be minutes behind: it must know the job of an attempt that has begun (SEED=2839139).
func TestI3DatabaseThatDoesNotShowABegunJobHasNotSaidHowItEnded(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Running)).at(late).decide(seen(late)).is(plan.Running, plan.ReadRecords)
	at := late + time.Minute
	b.at(at).decide(read(at, started(), nil)).is(plan.Running, plan.QueryAccounting)
	b.decide(accounted(at)).is(plan.Running)
	b.decide(accounted(at, job(sbatch.StateOutOfMemory))).at(at + time.Minute)
	b.decide(read(at+time.Minute, started(), nil)).is(plan.Collecting, plan.Collect)
	if v := b.row.Verdict; v.Cause != spool.CauseLimit {
		t.Errorf("the verdict is %+v", v)
	}
}

// A site rewrites the names of jobs, and sbatch's answer was lost. A record shows the job that began the attempt.
// The earlier snapshot was searched only for the second submission's job (SEED=520201).
func TestI3SnapshotThatWasSearchedForAnotherJobShowsNoAbsence(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]sbatch.JobID{"the second submission's": 9, "none": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := rowIn(plan.Queued)
			row.Job = sbatch.Job{ID: known, State: sbatch.StatePending}
			b := given(t, row).at(late)
			n := read(late, started(), nil)
			n.Observation = &plan.Observation{SubmissionName: submission, Job: known, Asked: b.now}
			b.row, b.effects = b.policy.Next(b.now, b.row, n)
			b.is(plan.Running)
			if b.row.Job.ID != 7 || !b.row.NoJobSince.IsZero() {
				t.Errorf("job %s, none since %s; want job 7, which runs", b.row.Job.ID, b.row.NoJobSince)
			}
			b.at(late+time.Minute).decide(seen(late+time.Minute)).is(plan.Running, plan.ReadRecords)
		})
	}
}

func TestI3FreshJobThatIsNotShownYetIsNotAbsent(t *testing.T) {
	t.Parallel()
	for _, phase := range []plan.Phase{plan.Queued, plan.Running} {
		if b := given(t, rowIn(phase)).at(early).decide(seen(early)).is(phase); !b.row.NoJobSince.IsZero() {
			t.Errorf("%s: a snapshot within the grace counts as absence", phase)
		}
	}
}

// Another cluster of the federation runs the job, and an administrator has made its time limit longer (SEED=1017333).
func TestI3RevokedJobMayRunToItsLongerLimit(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]time.Duration{"longer": 5 * time.Hour, "as it was": time.Hour + 2*time.Minute, "none any more": sbatch.Unlimited} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			revoked := job(sbatch.StateRevoked)
			revoked.TimeLimit = limit
			ends := min(limit, 7*24*time.Hour) + 10*time.Minute
			row := rowIn(plan.Running)
			row.TimeLimits = plan.TimeLimits{First: time.Hour + 2*time.Minute, Now: limit, Told: limit}
			b := given(t, row).at(late).decide(seen(late, revoked)).is(plan.Running)
			b.at(late + ends).decide(seen(late+ends, revoked)).is(plan.Running)
			if over := late + ends + time.Second; !b.at(over).decide(seen(over, revoked)).row.NoJobSince.Equal(b.now) {
				t.Errorf("%s after it was revoked it still counts as running", ends)
			}
		})
	}
}

// A pack has been REVOKED for so long that it counts as ended, and a member begins then (SEED=3440665993).
func TestI3WorkerThatBeginsOutranksTheEndOfThePatienceWithItsRevokedJob(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Queued), func(r *plan.Row) { r.Shared, r.Pack = true, true })
	revoked, at := job(sbatch.StateRevoked), late+10*time.Minute+time.Second
	b.at(late).decide(seen(late, revoked)).is(plan.Queued)
	b.at(at).decide(seen(at, revoked)).is(plan.Queued, plan.ReadRecords)

	at += b.policy.Settle
	began := &spool.Started{Token: "token-1", Node: "n1", Job: "7", Submission: "b1b2b3.1", At: epoch.Add(at)}
	b.at(at).decide(read(at, began, nil)).is(plan.Running)
	b.decide(seen(at, revoked)).is(plan.Running)
	at += 7*24*time.Hour + time.Hour
	b.at(at).decide(seen(at, revoked)).is(plan.Running, plan.ReadRecords)
	at += b.policy.Settle
	b.at(at).decide(read(at, began, nil))
	b.is(plan.Collecting, plan.Collect).verdict(spool.CausePlatform, "Another cluster of the federation took Slurm job 7")
}
