package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

const (
	early = 60 * time.Second  // within the grace of a submission
	late  = 100 * time.Second // after it
)

func TestI2LostSubmitAnswerIsAdopted(t *testing.T) {
	t.Parallel()
	lost := answered(plan.SbatchAnswer{Words: "sbatch: signal: killed"})
	for name, found := range map[string]plan.News{
		"in the queue":          seen(early, job(sbatch.StatePending)),
		"in the queue, running": seen(early, job(sbatch.StateRunning)),
		"in the queue, ended":   seen(early, job(sbatch.StateCompleted)),
		"in a state to come":    seen(early, job("HIBERNATING")),
		"together with a ghost": seen(early, ghostJob(), job(sbatch.StatePending)),
		"in the accounting":     accounted(late, job(sbatch.StateCompleted)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := given(t, rowIn(plan.Submitting)).decide(lost).is(plan.Submitting)
			b.at(early).decide(found)
			if b.row.Phase != plan.Queued || b.row.Job.ID != 7 {
				t.Errorf("row in %s with job %s (%s), want job 7 adopted", b.row.Phase, b.row.Job.ID, b.row.Reason)
			}
		})
	}
	t.Run("by its start record", func(t *testing.T) {
		t.Parallel()
		given(t, rowIn(plan.Submitting)).decide(lost).decide(read(early, started(), nil)).is(plan.Running)
	})
}

func TestI2AdoptedNeverSubmittedAgain(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Submitting)).at(early).decide(seen(early, job(sbatch.StatePending))).is(plan.Queued)
	// This holds for every answer of Slurm, and of the sbatch whose answer was lost.
	for _, n := range []plan.News{
		answered(plan.SbatchAnswer{Words: "timed out"}),
		answered(plan.SbatchAnswer{Refused: true, Retry: true, Words: "busy"}),
		answered(plan.SbatchAnswer{Refused: true, Words: "Invalid qos specification"}),
		answered(plan.SbatchAnswer{Job: 8}),
		seen(early), seen(late),
		{},
	} {
		b.at(late).decide(n)
		for _, k := range b.kinds() {
			if k == plan.Submit {
				t.Fatalf("submitted again: %s", b.row.Reason)
			}
		}
		if b.row.Phase != plan.Queued || b.row.Job.ID != 7 {
			t.Fatalf("row in %s with job %s, want job 7 kept", b.row.Phase, b.row.Job.ID)
		}
	}
}

func TestI2ObservationOfAnotherSubmissionIsIgnored(t *testing.T) {
	t.Parallel()
	old := seen(early, sbatch.Job{ID: 3, Name: "cl-ann-0123456789ab.0-b1b2b3", State: sbatch.StateNodeFail, Nodes: "n1"})
	old.Observation.SubmissionName = "cl-ann-0123456789ab.0-b1b2b3"
	b := given(t, rowIn(plan.Submitting)).at(early).decide(old).is(plan.Submitting)
	old.Observation.Asked, old.Observation.Jobs = epoch.Add(late), nil
	if b.at(late).decide(old).is(plan.Submitting); !b.row.AbsentAsOf.IsZero() {
		t.Error("an observation of another submission counts as absence")
	}
	b.decide(plan.News{Accounting: &plan.Observation{SubmissionName: old.Observation.SubmissionName, Asked: epoch.Add(late), Jobs: []sbatch.Job{job(sbatch.StateFailed)}}})
	b.is(plan.Submitting)
}

func TestI4AttemptIsFencedBeforeTheNext(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]plan.News{
		"node failed":       seen(late, job(sbatch.StateNodeFail)),
		"ended at once":     seen(late, job(sbatch.StateCompleted)),
		"not shown anymore": seen(late),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := given(t, rowIn(plan.Queued)).at(late).decide(over)
			b.decide(accounted(late))
			// The disk gets its time to show a start.
			b.at(late + 2*time.Second).decide(read(late+2*time.Second, nil, nil)).is(plan.Queued)
			b.at(late+10*time.Second).decide(plan.News{}).is(plan.Queued, plan.ReadRecords)
			b.decide(read(late+10*time.Second, nil, nil))
			if name == "not shown anymore" {
				b.is(plan.Queued, plan.QueryAccounting).decide(accounted(late + 11*time.Second))
			}
			b.is(plan.Queued, plan.Fence)
			b.decide(fencing(spool.Started{Fenced: true, Token: "ours"})).is(plan.Staging)
			if b.row.SubmissionName != "" || b.row.Begun != nil || b.row.Fenced || !b.row.SubmittedAt.IsZero() {
				t.Errorf("row keeps of its last attempt: %+v", b.row)
			}
		})
	}
}

func TestI4FencingThatFailsIsRepeatedAndNothingElse(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Queued), ended).at(late+11*time.Second).decide(read(late+10*time.Second, nil, nil)).is(plan.Queued, plan.Fence)
	failed := plan.News{Fenced: &plan.Fencing{Attempt: 1, Failure: "no space left on device"}}
	for range 50 {
		b.decide(failed).is(plan.Queued)
		if !b.row.DueAt.After(b.now) {
			t.Fatal("a fencing that failed is not waited for")
		}
		b.now = b.row.DueAt
		b.decide(plan.News{}).is(plan.Queued, plan.Fence)
	}
}

// ended changes a row to one whose job Slurm has shown to be over.
func ended(r *plan.Row) { r.NoJobSince, r.Job = epoch.Add(late), job(sbatch.StateNodeFail) }

func TestI4BegunBundleBeginsAgainOnlyWherePolicyAllows(t *testing.T) {
	t.Parallel()
	const deadline = late + 10*time.Second
	lost := read(deadline, started(), nil)
	for _, c := range []struct {
		name    string
		retry   plan.RetryBegun
		state   sbatch.State
		attempt int
		news    plan.News
		want    plan.Phase
	}{
		{"node failed, never", plan.RetryNever, sbatch.StateNodeFail, 1, lost, plan.Collecting},
		{"node failed, on platform", plan.RetryOnPlatform, sbatch.StateNodeFail, 1, lost, plan.Staging},
		{"preempted, on platform", plan.RetryOnPlatform, sbatch.StatePreempted, 1, lost, plan.Staging},
		{"last attempt", plan.RetryOnPlatform, sbatch.StateNodeFail, 3, lost, plan.Collecting},
		{"cancelled outside", plan.RetryOnPlatform, sbatch.StateCancelled, 1, lost, plan.Collecting},
		{"time limit", plan.RetryOnPlatform, sbatch.StateTimeout, 1, lost, plan.Collecting},
		{"own failure", plan.RetryOnPlatform, sbatch.StateFailed, 1, read(deadline, started(), exit(3)), plan.Collecting},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := given(t, rowIn(plan.Running), ended, func(r *plan.Row) {
				r.Job.CancelledBy = "1001"
				r.Job.State, r.Attempt.Number, r.FailedAttempts = c.state, c.attempt, c.attempt-1
			})
			q := b.policy.Queues["cpu"]
			q.RetryBegun = c.retry
			b.policy.Queues["cpu"] = q
			records := *c.news.Records
			records.Attempt = c.attempt
			b.at(deadline).decide(plan.News{Records: &records})
			if b.row.Phase != c.want {
				t.Errorf("row in %s (%s), want %s", b.row.Phase, b.row.Reason, c.want)
			}
		})
	}
}

func TestI4UnbegunBundleIsTriedElsewhereBounded(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Queued), ended, func(r *plan.Row) {
		r.Attempt.Number, r.FailedAttempts, r.OutputTail = 3, 2, "exec: cl-worker: not found"
	})
	b.at(late).decide(plan.News{Fenced: &plan.Fencing{Attempt: 3, Started: spool.Started{Fenced: true}}})
	b.is(plan.Finalizing).verdict(spool.CausePlatform, "The node of Slurm job 7 failed before it began")
}

func TestI4StartThatStandsInTheWayOfFencingIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	// The disk showed the start late: only the fencing found it.
	b := given(t, rowIn(plan.Queued), ended).at(late+11*time.Second).decide(read(late+10*time.Second, nil, nil)).is(plan.Queued, plan.Fence)
	b.decide(fencing(*started())).is(plan.Running, plan.ReadRecords)
	b.decide(read(late+11*time.Second, started(), exit(0))).is(plan.Collecting, plan.Collect).verdict(spool.CauseSucceeded, "")
}

func TestI7FinalVerdictNeverChanges(t *testing.T) {
	t.Parallel()
	fail := plan.Outcome{Failure: "403", Final: true}
	news := []plan.News{
		{},
		told(kill), told(offered()), told(offered(), kill),
		read(time.Hour, started(), exit(3)),
		seen(time.Hour, job(sbatch.StateNodeFail)), seen(time.Hour),
		accounted(time.Hour, job(sbatch.StateCancelled)),
		{Collected: &fail},
		{Collected: &plan.Outcome{}},
		{Cancelled: &fail},
		fencing(spool.Started{Fenced: true}),
		answered(plan.SbatchAnswer{Refused: true, Words: "no"}),
		{Claimed: &plan.Claimed{Outcome: fail}},
		{Staged: &plan.StageEnd{Outcome: fail}},
		told(ack), told(kill), told(offered()),
		{Collected: &fail},
		told(ack), told(offered()),
	}
	// A late record, of a bundle that is delivered again.
	again := told(offered())
	again.Records = read(time.Hour, started(), exit(3)).Records
	news = append([]plan.News{told(ack), again, {Collected: &plan.Outcome{}}}, news...)
	first := rowIn(plan.Finalizing)
	first.Exit = nil
	want := *first.Verdict
	b := given(t, first)
	for i, n := range news {
		b.at(time.Duration(i) * time.Minute).decide(n)
		if diff := cmp.Diff(&want, b.row.Verdict); diff != "" {
			t.Fatalf("after news %d the verdict changed (-reported +now):\n%s", i, diff)
		}
	}
}

func TestI7ExitRecordOutranksSlurm(t *testing.T) {
	t.Parallel()
	t.Run("before Slurm says anything", func(t *testing.T) {
		t.Parallel()
		given(t, rowIn(plan.Running)).at(late).decide(read(late, started(), exit(0))).is(plan.Collecting, plan.Collect).verdict(spool.CauseSucceeded, "")
	})
	t.Run("against Slurm's word", func(t *testing.T) {
		t.Parallel()
		b := given(t, rowIn(plan.Running)).at(late).decide(seen(late, job(sbatch.StateNodeFail))).is(plan.Running, plan.ReadRecords)
		b.decide(read(late, started(), exit(0))).is(plan.Collecting, plan.Collect).verdict(spool.CauseSucceeded, "")
	})
	t.Run("shown late", func(t *testing.T) {
		t.Parallel()
		b := given(t, rowIn(plan.Running), ended).at(late + 10*time.Second).decide(read(late+10*time.Second, started(), nil))
		b.is(plan.Collecting, plan.Collect).verdict(spool.CausePlatform, "The node of Slurm job 7 failed")
		b.decide(read(late+20*time.Second, started(), exit(0))).is(plan.Collecting, plan.Collect).verdict(spool.CauseSucceeded, "")
	})
	t.Run("but not under another token", func(t *testing.T) {
		t.Parallel()
		foreign := exit(0)
		foreign.Token = "token-2"
		given(t, rowIn(plan.Running)).at(late).decide(read(late, started(), foreign)).is(plan.Running)
	})
	t.Run("and a terminated job leaves the reason to Slurm", func(t *testing.T) {
		t.Parallel()
		stopped := exit(143)
		stopped.Terminated = true
		b := given(t, rowIn(plan.Running)).at(late).decide(read(late, started(), stopped)).is(plan.Running)
		byTime := *b
		byTime.decide(seen(late, job(sbatch.StateTimeout))).is(plan.Collecting, plan.ReadRecords, plan.Collect).verdict(spool.CauseLimit, "time limit")
		purged := *b
		purged.at(late+time.Second).decide(seen(late+time.Second)).is(plan.Running, plan.ReadRecords, plan.QueryAccounting)
		purged.decide(accounted(late+2*time.Second, job(sbatch.StateCancelled))).is(plan.Collecting, plan.Collect).verdict(spool.CauseUser, "cancelled outside CodaLab")
		if code := purged.row.Verdict.ExitCode; code == nil || *code != 143 {
			t.Errorf("exit code %v, want the record's", code)
		}
		unknown := *b
		unknown.at(late+time.Second).decide(seen(late+time.Second)).is(plan.Running, plan.ReadRecords, plan.QueryAccounting)
		unknown.decide(accounted(late + 2*time.Second)).is(plan.Running) // the database may be behind (SEED=5058066)
		given := late + b.policy.RecordAge + 2*time.Second
		unknown.at(given).decide(accounted(given)).is(plan.Collecting, plan.Collect).verdict(spool.CauseUser, "")
	})
}

func TestI7SupersededRecordIsIgnored(t *testing.T) {
	t.Parallel()
	// Attempt 1 failed with its node; the row waits to be submitted again.
	b := given(t, rowIn(plan.Running), ended)
	q := b.policy.Queues["cpu"]
	q.RetryBegun = plan.RetryOnPlatform
	b.policy.Queues["cpu"] = q
	b.at(late + 10*time.Second).decide(read(late+10*time.Second, started(), nil)).is(plan.Staging)
	// Its worker was only cut off, and comes back.
	back := read(late+20*time.Second, started(), exit(0))
	b.at(late + 20*time.Second).decide(back).is(plan.Staging)
	b.decide(fencing(*started())).is(plan.Staging)
	b.row = b.policy.NewAttempt(b.now, b.row, 1)
	b.decide(plan.News{}).is(plan.Submitting, plan.Prepare)
	b.decide(plan.News{Prepared: &plan.Outcome{}}).is(plan.Submitting, plan.Submit)
	b.decide(back).is(plan.Submitting)
	b.decide(answered(plan.SbatchAnswer{Job: 7})).is(plan.Submitting) // the first attempt's answer
	b.decide(fencing(*started())).is(plan.Submitting)
	if b.row.Begun != nil || b.row.Exit != nil || b.row.Fenced {
		t.Errorf("attempt %d took over records of attempt 1: begun %v, exit %v", b.row.Attempt.Number, b.row.Begun, b.row.Exit)
	}
}

func confirmed(asked time.Time, state codalab.State) plan.News {
	return plan.News{Confirmed: &plan.Confirmation{Asked: asked, State: state}}
}

func TestI6ResultIsReportedOnceAwaitedAndKeptAfter(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Finalizing))
	for i := range 100 {
		b.at(time.Duration(i+1)*time.Hour).decide(plan.News{}).is(plan.Finalizing, plan.Confirm)
		b.decide(confirmed(b.now, codalab.StateFinalizing)).is(plan.Finalizing)
		if !b.row.Reportable() || b.row.ReportCount != 1 {
			t.Fatalf("reported %v, %d times, want once", b.row.Reportable(), b.row.ReportCount)
		}
	}
	b.decide(told(ack)).is(plan.Done)
	end := b.now.Add(24 * time.Hour)
	if b.row.Reportable() || b.row.KeepUntil != end {
		t.Errorf("reported %v, kept until %s, want silence and a day's keep", b.row.Reportable(), b.row.KeepUntil)
	}
	b.decide(told(ack, kill)).is(plan.Done)
	checks := 0
	for ; b.row.DueAt.Before(end); checks++ {
		b.now = b.row.DueAt
		b.decide(plan.News{}).is(plan.Done, plan.Confirm).decide(confirmed(b.now, codalab.StateReady)).is(plan.Done)
	}
	if checks != 5 {
		t.Errorf("the server was asked %d times within the day", checks)
	}
	b.now = end
	b.decide(plan.News{}).is(plan.Done, plan.Confirm).decide(confirmed(b.now, codalab.StateReady)).is(plan.Done, plan.Release)
	b.decide(plan.News{Released: &plan.Outcome{Failure: "stale file handle"}}).is(plan.Done)
	b.now = b.row.DueAt
	b.decide(plan.News{}).is(plan.Done, plan.Release)
	b.decide(plan.News{Released: &plan.Outcome{}}).is(plan.Done, plan.Forget)
}
