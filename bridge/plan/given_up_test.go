package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// vanished is the result of a fencing without a directory.
func vanished() plan.News {
	return plan.News{Fenced: &plan.Fencing{Attempt: 1, Failure: "not on the shared disk", Gone: true}}
}

// settledRow returns a queued row whose job is over and whose records were read afterwards.
func settledRow(state sbatch.State, nodes string) plan.Row {
	r := rowIn(plan.Queued)
	r.Job = sbatch.Job{ID: 7, Name: string(submission), State: state, Nodes: nodes, Reason: "None", Submitted: epoch}
	r.NoJobSince, r.RecordsReadAt = epoch, epoch.Add(10*time.Second)
	return r
}

func TestI3MissingDirectoryIsEvidenceOnlyAfterTheDisksTime(t *testing.T) {
	t.Parallel()
	b := given(t, settledRow(sbatch.StateBootFail, "")).at(20 * time.Second)
	b.decide(vanished()).is(plan.Queued)
	if b.row.Fenced || b.row.RecordsGoneSince != b.now {
		t.Errorf("fenced %v, gone %s, want only that it is noted", b.row.Fenced, b.row.RecordsGoneSince)
	}
	b.at(29 * time.Second).decide(vanished()).is(plan.Queued)
	// The directory is visible again: nothing was gone.
	again := *b
	again.at(30 * time.Second).decide(fencing(spool.Started{Fenced: true})).is(plan.Staging)
	// An unreachable disk is not a missing directory.
	b.at(31 * time.Second).decide(plan.News{Fenced: &plan.Fencing{Attempt: 1, Failure: "input/output error"}}).is(plan.Queued)
	b.at(40 * time.Second).decide(vanished()).is(plan.Staging)
}

func TestI3DirectoryThatShowsAgainIsNotGone(t *testing.T) {
	t.Parallel()
	b := given(t, settledRow(sbatch.StateFailed, "n1")).at(20 * time.Second).decide(vanished()).is(plan.Queued)
	b.at(40*time.Second).decide(fencing(*started())).is(plan.Running, plan.ReadRecords)
	if !b.row.RecordsGoneSince.IsZero() || b.row.Fenced {
		t.Errorf("gone %s, fenced %v, want neither", b.row.RecordsGoneSince, b.row.Fenced)
	}
}

func TestI4AttemptThatMayHaveBegunIsNotBegunAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		nodes      string
		accounting bool
		retry      plan.RetryBegun
		want       plan.Phase
		says       string
	}{
		{"it never had a node", "", true, plan.RetryNever, plan.Staging, "before it began"},
		{"it had a node", "n1", true, plan.RetryNever, plan.Finalizing, "its records are gone"},
		{"it had a node and may begin again", "n1", true, plan.RetryOnPlatform, plan.Staging, "its records are gone"},
		{"unknown whether it had a node", "", false, plan.RetryNever, plan.Finalizing, "its records are gone"},
		{"unknown, and it may begin again", "", false, plan.RetryOnPlatform, plan.Staging, "its records are gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := given(t, settledRow(sbatch.StateNodeFail, c.nodes)).at(20 * time.Second)
			q := b.policy.Queues["cpu"]
			q.RetryBegun = c.retry
			b.policy.Queues["cpu"], b.policy.Accounting = q, c.accounting
			b.decide(vanished()).at(40 * time.Second).decide(vanished()).is(c.want)
			why := b.row.LastFailure
			if b.row.Verdict != nil {
				why = b.row.Verdict.Failure
			}
			if !strings.Contains(why, c.says) {
				t.Errorf("it says %q, want %q", why, c.says)
			}
		})
	}
}

// A node was silent while Slurm launched the job, so that Slurm put the job back into the queue. Then the node was there
// again, and cancelled the job as root.
func TestLaunchThatCameTooLateIsTriedAgain(t *testing.T) {
	t.Parallel()
	back, end := job(sbatch.StatePending), job(sbatch.StateCancelled)
	back.Nodes, end.Nodes, end.CancelledBy = "", "", "0"
	for name, last := range map[string]plan.News{"the queue": seen(late+time.Second, end), "accounting": accounted(late+time.Second, end)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := given(t, rowIn(plan.Queued)).at(early).decide(seen(early, job(sbatch.StateRunning)))
			b.at(late).decide(seen(late, back)).is(plan.Queued)
			if last.Accounting != nil {
				b.at(late + time.Second).decide(seen(late + time.Second))
			}
			b.at(late + time.Second).decide(last)
			b.at(2 * late).decide(read(2*late, nil, nil)).decide(fencing(spool.Started{Fenced: true})).is(plan.Staging)
			if want := "Slurm ended job 7 on n1 before its worker began"; !strings.HasPrefix(b.row.LastFailure, want) {
				t.Errorf("the attempt failed: %q, want %q", b.row.LastFailure, want)
			}
			if b.row.LastNodes != "" {
				t.Errorf("the next attempt has the nodes %q", b.row.LastNodes)
			}
		})
	}
	t.Run("and its records are gone: it may have begun", func(t *testing.T) { // I4
		t.Parallel()
		b := given(t, rowIn(plan.Queued)).at(early).decide(seen(early, job(sbatch.StateRunning)))
		b.at(late).decide(seen(late, back)).at(late + time.Second).decide(seen(late+time.Second, end))
		b.at(2 * late).decide(read(2*late, nil, nil)).decide(vanished()).at(2*late + 20*time.Second).decide(vanished()).is(plan.Finalizing)
		b.verdict(spool.CausePlatform, "its records are gone from the shared disk")
	})
	t.Run("never launched", func(t *testing.T) {
		t.Parallel()
		b := given(t, rowIn(plan.Queued)).at(early).decide(seen(early, back)).at(late).decide(seen(late, end))
		b.at(2 * late).decide(read(2*late, nil, nil)).decide(fencing(spool.Started{Fenced: true}))
		b.verdict(spool.CauseUser, "cancelled outside CodaLab by an administrator (root) before it began")
	})
}

// A pack is not in Slurm any more, and nothing shows its end. A member that it did not begin has failed in nothing, if the pack
// has begun another one: its worker may even run on (SEED=2000270852).
func TestI3MemberOfAPackThatIsNotShownHasNotFailed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		begun  bool
		change func(*plan.Row)
		want   plan.Phase
		says   string
	}{
		{"its pack has begun another member", true, func(*plan.Row) {}, plan.Staging, "Slurm does not show its pack any more, job 7 (last seen RUNNING), and its turn had not come"},
		{"it is back in the queue", true, func(r *plan.Row) { r.Job.State = sbatch.StatePending }, plan.Staging, "job 7 (last seen PENDING)"},
		{"another cluster has it", true, func(r *plan.Row) { r.Job.State, r.RevokedSince = sbatch.StateRevoked, epoch.Add(-time.Hour) }, plan.Staging, "job 7 (last seen REVOKED)"},
		{"its pack has begun none: its node may not see the disk", false, func(*plan.Row) {}, plan.Finalizing, "left nothing on the shared disk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := settledRow(sbatch.StateRunning, "n1")
			r.Shared, r.Pack, r.FailedAttempts = true, true, 2
			c.change(&r)
			b := given(t, r).at(20 * time.Second)
			b.policy.Accounting = false
			n := fencing(spool.Started{Fenced: true})
			n.Submission = &plan.Place{State: plan.Made, Closed: true, Begun: c.begun, Members: 6, Job: 7}
			b.decide(n).is(c.want)
			why := b.row.LastFailure
			if b.row.Verdict != nil {
				why = b.row.Verdict.Failure
			}
			if !strings.Contains(why, c.says) {
				t.Errorf("it says %q, want %q", why, c.says)
			}
			if b.row.FailedAttempts != 2 || c.begun && b.row.MostTogether != 3 {
				t.Errorf("%d failed attempts, at most %d together next", b.row.FailedAttempts, b.row.MostTogether)
			}
		})
	}
}

// Snapshots do not show the job, and the site has removed its records (SEED=2133334).
func TestI3KillWithoutRecordsWaitsForSlurmsLastWord(t *testing.T) {
	t.Parallel()
	b := given(t, settledRow(sbatch.StatePending, "")).at(20 * time.Second)
	b.decide(told(kill)).decide(vanished()).at(40*time.Second).decide(vanished()).is(plan.Stopping, plan.QueryAccounting)
	b.decide(accounted(40*time.Second, job(sbatch.StateRunning))).is(plan.Stopping)
	b.decide(accounted(40*time.Second, job(sbatch.StateCancelled))).is(plan.Finalizing)
}

// The last snapshot is from before the pack's start: the bridge was down since, and the site has removed the records (SEED=3520003215).
func TestI3OldSnapshotDoesNotShowThatAPackWaits(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Stopping), func(r *plan.Row) {
		r.Shared, r.Pack, r.Begun, r.Exit, r.Job = true, true, nil, nil, job(sbatch.StatePending)
	})
	b.at(20 * time.Second).decide(vanished()).at(40 * time.Second).decide(vanished()).is(plan.Stopping)
	b.decide(seen(20*time.Second, job(sbatch.StatePending))).is(plan.Stopping)
	runs := *b
	runs.decide(seen(40*time.Second, job(sbatch.StateRunning))).is(plan.Stopping, plan.ReadRecords)
	b.decide(seen(40*time.Second, job(sbatch.StatePending))).is(plan.Finalizing)
}

// A fencing that succeeded needs no guess, whatever node the job had.
func TestI4FencedAttemptHasNotBegun(t *testing.T) {
	t.Parallel()
	given(t, settledRow(sbatch.StateNodeFail, "n1")).at(20 * time.Second).
		decide(fencing(spool.Started{Fenced: true})).is(plan.Staging)
}

func TestI2JobWithAnotherBundlesCommentIsNobodys(t *testing.T) {
	t.Parallel()
	with := func(comment string) sbatch.Job {
		j := job(sbatch.StateRunning)
		j.Comment = comment
		return j
	}
	foreign := with("codalab bundle=0xfeed attempt=1 owner=2 bridge=b1b2b3 generation=9")
	for name, comment := range map[string]string{
		"its own": "codalab bundle=" + uuid + " attempt=1 owner=1 bridge=b1b2b3 generation=1", "none": "",
		"a rewritten one": "charge=1234", "words": "bundle=0xfeed", "half": "codalab attempt=1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := with(comment)
			own.ID = 9
			b := given(t, rowIn(plan.Submitting)).at(early).decide(seen(early, foreign, own)).is(plan.Queued, plan.ReadRecords)
			if b.row.Job.ID != 9 {
				t.Errorf("adopted job %s, want 9", b.row.Job.ID)
			}
		})
	}
	t.Run("another bundle's", func(t *testing.T) {
		t.Parallel()
		b := given(t, rowIn(plan.Submitting)).at(early).decide(seen(early, foreign)).is(plan.Submitting)
		b.at(late).decide(seen(late, foreign)).is(plan.Submitting, plan.QueryAccounting)
		b.decide(accounted(late, foreign)).is(plan.Submitting, plan.Submit)
		// It is not cancelled, and its end does not count for the bundle.
		over := foreign
		over.State = sbatch.StateCancelled
		q := given(t, rowIn(plan.Queued)).at(early).decide(seen(early, over, job(sbatch.StatePending))).is(plan.Queued)
		q.decide(told(kill)).is(plan.Stopping, plan.Cancel, plan.Fence)
		if q.row.Job.ID != 7 {
			t.Errorf("cancels job %s, want 7", q.row.Job.ID)
		}
	})
}

func TestBatchNumbersSubmissions(t *testing.T) {
	t.Parallel()
	var staged []*plan.Row
	for i, id := range []string{"0xaaa", "0xbbb", "0xccc"} {
		r := rowIn(plan.Staging)
		r.Staged, r.Bundle, r.OfferedAt = &spool.Inputs{}, id, epoch.Add(time.Duration(i)*time.Second)
		staged = append(staged, &r)
	}
	staged[1].Attempt.Number, staged[1].UnclearCount, staged[1].FailedTries = 2, 3, 7 // refused for now seven times
	rows, _ := policy().Batch(epoch, plan.Waiting{Rows: staged, MaySubmit: map[string]int{"cpu": 9}, Budget: 2}, nil, 41)
	if len(rows) != 2 || rows[0].Generation != 42 || rows[1].Generation != 43 {
		t.Fatalf("rows %+v, want generations 42 and 43", rows)
	}
	again := rows[1]
	if again.Attempt.Number != 3 || again.UnclearCount != 0 || again.FailedTries != 7 || again.SubmissionName == rows[0].SubmissionName {
		t.Errorf("attempt %d, unclear %d, tries %d, name %s: want a fresh third attempt, and the refusals that lengthen the pause", again.Attempt.Number, again.UnclearCount, again.FailedTries, again.SubmissionName)
	}
	comment := policy().Request(again).Comment
	for _, want := range []string{" attempt=3 ", " bridge=b1b2b3 ", " generation=43"} {
		if !strings.Contains(comment+" ", want) {
			t.Errorf("comment %q lacks %q", comment, want)
		}
	}
	// An attempt that is given up loses its number, too.
	b := given(t, settledRow(sbatch.StateNodeFail, "")).at(time.Minute).decide(fencing(spool.Started{Fenced: true})).is(plan.Staging)
	if b.row.Generation != 0 {
		t.Errorf("generation %d after the attempt was given up", b.row.Generation)
	}
}

// The first sbatch made a job. Its answer was lost, and the site has renamed the job, so the bridge
// does not find it. Slurm refuses the second sbatch for now.
func TestI4KillFencesAnAttemptOfWhichAnEarlierSbatchMayHaveMadeAJob(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Submitting), func(r *plan.Row) { r.SbatchCount = 2 })
	b.decide(plan.News{Submitted: &plan.SbatchAnswer{Attempt: 1, Refused: true, Retry: true, Words: "too many jobs"}}).is(plan.Submitting)
	b.decide(plan.News{Messages: []codalab.Message{kill}}).is(plan.Stopping, plan.Fence)
	b.decide(fencing(spool.Started{Fenced: true})).is(plan.Finalizing)
}
