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

// Tries that fail in other ways are not answers.
func TestOneUnclearAnswerAfterManyRefusalsForNowIsSubmittedAgain(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Submitting), func(r *plan.Row) { r.FailedTries = 9 })
	b.decide(answered(plan.SbatchAnswer{Words: "killed"})).is(plan.Submitting)
	b.at(late).decide(seen(late)).is(plan.Submitting, plan.QueryAccounting)
	b.decide(plan.News{AccountingFailure: "slurmdbd does not answer"}).is(plan.Submitting)
	b.at(late+5*time.Minute).decide(accounted(late+5*time.Minute)).is(plan.Submitting, plan.Submit)
}

// TestKillInEachPhase kills a bundle in each phase, and lets each effect succeed.
func TestKillInEachPhase(t *testing.T) {
	t.Parallel()
	terminated := exit(143)
	terminated.Terminated = true
	for _, c := range []struct {
		name string
		row  plan.Row
		then []plan.News
		want plan.Phase
	}{
		{"claiming", rowIn(plan.Claiming), []plan.News{claimed(true, plan.Outcome{})}, plan.Finalizing},
		{"staging", rowIn(plan.Staging), nil, plan.Finalizing},
		{"submitting, before sbatch", vary(rowIn(plan.Submitting), func(r *plan.Row) { r.SubmittedAt, r.SbatchCount = time.Time{}, 0 }), nil, plan.Finalizing},
		{"submitting, refused", rowIn(plan.Submitting), []plan.News{
			answered(plan.SbatchAnswer{Refused: true, Retry: true}), fencing(spool.Started{Fenced: true}),
		}, plan.Finalizing},
		{"submitting, accepted", rowIn(plan.Submitting), []plan.News{
			answered(plan.SbatchAnswer{Job: 7}), {Cancelled: &plan.Outcome{}}, fencing(spool.Started{Fenced: true}),
		}, plan.Finalizing},
		{"submitting, unknown, then found", rowIn(plan.Submitting), []plan.News{
			answered(plan.SbatchAnswer{Words: "?"}), fencing(spool.Started{Fenced: true}), seen(early, job(sbatch.StatePending)), {Cancelled: &plan.Outcome{}},
		}, plan.Finalizing},
		{"submitting, unknown, then begun", rowIn(plan.Submitting), []plan.News{
			answered(plan.SbatchAnswer{Words: "?"}), fencing(*started()), seen(early, job(sbatch.StateRunning)),
			{Cancelled: &plan.Outcome{}},
			read(early, started(), terminated),
		}, plan.Collecting},
		{"submitting, unknown, then absent", rowIn(plan.Submitting), []plan.News{
			fencing(spool.Started{Fenced: true}), seen(late),
		}, plan.Finalizing},
		{"queued", rowIn(plan.Queued), []plan.News{{Cancelled: &plan.Outcome{}}, fencing(spool.Started{Fenced: true})}, plan.Finalizing},
		{"queued, but it begins", rowIn(plan.Queued), []plan.News{
			fencing(*started()), {Cancelled: &plan.Outcome{}}, read(early, started(), terminated),
		}, plan.Collecting},
		{"running", rowIn(plan.Running), []plan.News{{Cancelled: &plan.Outcome{}}, read(early, started(), terminated)}, plan.Collecting},
		{"running, and it ends by itself", rowIn(plan.Running), []plan.News{read(early, started(), exit(0))}, plan.Collecting},
		{"running, with its node lost", rowIn(plan.Running), []plan.News{
			seen(early, job(sbatch.StateNodeFail)), read(3*late, started(), nil),
		}, plan.Collecting},
		{"collecting", rowIn(plan.Collecting), nil, plan.Collecting},
		{"finalizing", rowIn(plan.Finalizing), nil, plan.Finalizing},
		{"done", rowIn(plan.Done), nil, plan.Done},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := given(t, c.row).at(2 * late).decide(told(kill))
			for _, n := range c.then {
				if n.Records != nil && n.Records.Read.After(b.now) {
					b.now = n.Records.Read
				}
				b.decide(n)
			}
			if b.row.Phase != c.want {
				t.Fatalf("row in %s (%s), want %s", b.row.Phase, b.row.Reason, c.want)
			}
			if c.row.Verdict != nil && b.row.StopVerdict != nil {
				t.Error("a bundle that has its verdict is to be stopped")
			}
			own := b.row.Exit != nil && !b.row.Exit.Terminated
			if !own && b.row.Verdict.Failure != codalab.KillRequested {
				t.Errorf("verdict %q, want that it was killed", b.row.Verdict.Failure)
			}
		})
	}
}

// The kill is reported once the attempt is fenced. The job is cancelled when a snapshot shows it, even after a
// restart and after the server's acknowledgement.
func TestKilledJobThatTurnsUpLateIsCancelled(t *testing.T) {
	t.Parallel()
	jobless := func(r *plan.Row) { r.Job, r.Begun = sbatch.Job{}, nil }
	// Without the fencing a job could still begin.
	b := given(t, rowIn(plan.Stopping), jobless).decide(plan.News{}).is(plan.Stopping, plan.Fence)
	b.decide(fencing(spool.Started{Fenced: true})).is(plan.Finalizing)
	b.decide(answered(plan.SbatchAnswer{Job: 9})).is(plan.Finalizing)
	if !b.row.InFlight() {
		t.Error("nobody looks for its job")
	}
	b.decide(told(codalab.Message{Type: codalab.MessageMarkFinalized, UUID: uuid})).is(plan.Done)
	b.decide(plan.News{Restarted: true}).is(plan.Done)
	late := job(sbatch.StatePending)
	late.ID = 9
	b.at(early).decide(seen(early, late)).is(plan.Done, plan.Cancel, plan.Confirm)
	if id := b.effects[0].Row.Job.ID; id != 9 {
		t.Errorf("cancels job %s, want 9", id)
	}
	b.decide(plan.News{Cancelled: &plan.Outcome{}})
	late.State = sbatch.StateCancelled
	b.decide(seen(early, late))
	if b.row.InFlight() {
		t.Error("its job is still looked for")
	}
}

// Files stay while a job that needs them may start.
func TestFilesOfAKilledBundleStayWhileItsJobLives(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Done), func(r *plan.Row) { r.Begun, r.Fenced, r.Job = nil, true, job(sbatch.StatePending) })
	gone := plan.News{Confirmed: &plan.Confirmation{State: codalab.StateKilled}}
	b.now = b.row.KeepUntil
	gone.Confirmed.Asked = b.now
	b.decide(gone).is(plan.Done, plan.Cancel)
	b.now = b.row.DueAt
	b.decide(seen(b.now.Sub(epoch))).is(plan.Done, plan.Confirm)
	gone.Confirmed.Asked = b.now
	b.decide(gone).is(plan.Done, plan.Release)
}

// An id that only sbatch's answer has named may be wrong.
func TestJobThatNoSnapshotHasShownIsNotCancelled(t *testing.T) {
	t.Parallel()
	unseen := func(r *plan.Row) { r.Job.Submitted = time.Time{} }
	b := given(t, rowIn(plan.Queued), unseen).decide(told(kill)).is(plan.Stopping, plan.Fence)
	b.decide(seen(early, job(sbatch.StatePending))).is(plan.Stopping, plan.Cancel, plan.Fence)
	// The worker of a begun attempt has named its job's id too.
	given(t, rowIn(plan.Running), unseen).decide(told(kill)).is(plan.Stopping, plan.Cancel)
}

func vary(r plan.Row, change func(*plan.Row)) plan.Row {
	change(&r)
	return r
}

// A snapshot shows every six seconds that the job still lives.
func TestCancelIsRepeatedWhileTheJobLives(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Running)).decide(told(kill)).is(plan.Stopping, plan.Cancel)
	for try := range 5 {
		o := &plan.Outcome{}
		if try == 0 {
			o.Failure = "unable to contact slurm controller"
		}
		b.decide(plan.News{Cancelled: o}).is(plan.Stopping)
		b.now = b.now.Add(6 * time.Second)
		b.decide(seen(b.now.Sub(epoch), job(sbatch.StateRunning))).is(plan.Stopping)
		b.now = b.now.Add(6 * time.Second)
		b.decide(seen(b.now.Sub(epoch), job(sbatch.StateRunning))).is(plan.Stopping, plan.Cancel)
	}
	b.decide(plan.News{Cancelled: &plan.Outcome{}}).is(plan.Stopping)
	b.now = b.now.Add(time.Minute)
	b.decide(seen(b.now.Sub(epoch), job(sbatch.StateCompleting))).is(plan.Stopping, plan.ReadRecords)
}

func TestRestartTakesUpEachPhase(t *testing.T) {
	t.Parallel()
	for phase, want := range map[plan.Phase][]plan.Kind{
		plan.Claiming: {plan.Claim}, plan.Staging: {plan.Stage}, plan.Submitting: nil, plan.Queued: nil, plan.Running: nil,
		plan.Stopping: {plan.Cancel}, plan.Collecting: {plan.Collect}, plan.Finalizing: nil, plan.Done: nil,
	} {
		given(t, rowIn(phase)).decide(plan.News{}).is(phase, want...)
	}
	given(t, rowIn(plan.Done), func(r *plan.Row) { r.Releasing, r.DueAt = true, time.Time{} }).decide(plan.News{}).is(plan.Done, plan.Release)
	unbegun := rowIn(plan.Stopping)
	unbegun.Begun = nil
	given(t, unbegun).decide(plan.News{}).is(plan.Stopping, plan.Cancel, plan.Fence)
}

// TestI6ServerThatIsAwayForDaysGetsTheResults: the upload is tried every minute, and the results stay unchanged.
func TestI6ServerThatIsAwayForDaysGetsTheResults(t *testing.T) {
	t.Parallel()
	failed := plan.News{Collected: &plan.Outcome{Failure: "connection refused"}}
	b := given(t, rowIn(plan.Collecting))
	tries := 0
	for at := time.Duration(0); at < 72*time.Hour; tries++ {
		b.at(at).decide(failed).is(plan.Collecting, plan.Confirm)
		if pause := b.row.DueAt.Sub(b.now); pause <= 0 || pause > time.Minute {
			t.Fatalf("after %s the next try is in %s", at, pause)
		}
		at += b.row.DueAt.Sub(b.now)
		b.at(at).decide(plan.News{}).is(plan.Collecting, plan.Collect)
	}
	b.decide(plan.News{Collected: &plan.Outcome{}}).is(plan.Finalizing)
	if v := b.row.Verdict; v.Failure != "" || tries < 4000 {
		t.Errorf("verdict %+v after %d tries", v, tries)
	}
}

func TestReadingsThatOvertakeOneAnotherLoseNothing(t *testing.T) {
	t.Parallel()
	var n plan.News
	n.AddRecords(plan.Records{Attempt: 2, Read: epoch.Add(time.Second), Records: spool.Records{Started: started(), Exit: exit(0), Output: "x"}})
	want := n
	n.AddRecords(plan.Records{Attempt: 2, Read: epoch})
	n.AddRecords(plan.Records{Attempt: 1, Read: epoch.Add(time.Hour), Records: spool.Records{Started: &spool.Started{Token: "old"}}})
	if diff := cmp.Diff(want, n); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
	n.AddRecords(plan.Records{Attempt: 3})
	if n.Records.Attempt != 3 || n.Records.Exit != nil {
		t.Errorf("records %+v, want those of the third attempt", n.Records)
	}
}

// Slurm 24.11 and later have further reasons (Slurm src/common/job_state_reason.c). These end with time, or by an
// administrator.
func TestReasonsOfNewerSlurmsThatPassAreNoVerdict(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{
		"ReqNodeNotAvail, May be reserved for other job", "user env retrieval failed requeued held", "MaxPoweredUpNodes",
		"NvidiaImexChannels", "ReservationInvalid", "MpiPortsBusy", "Constraints",
	} {
		waits := job(sbatch.StatePending)
		waits.Reason = reason
		b := given(t, rowIn(plan.Queued))
		for at := late; at < late+72*time.Hour; at += time.Hour {
			b.at(at).decide(seen(at, waits)).is(plan.Queued)
		}
	}
}

// A partition that does not permit the queue's account, QOS or group keeps its jobs waiting. Slurm 22.05 gives the
// reason, and refuses a group. 24.11 and later give PartitionConfig for the account. sbatch --test-only reports no
// error.
func TestI10PartitionThatPermitsNobodyIsNoVerdictOnABundle(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{
		"PartitionConfig",
		"Job's account not permitted to use this partition (cpu allows nlp not lab)",
		"Job's QOS not permitted to use this partition (cpu allows limited not normal)",
		"uid 1001 not in group permitted to use this partition (cpu). groups allowed: root",
	} {
		waits := job(sbatch.StatePending)
		waits.Reason = reason
		b := given(t, rowIn(plan.Queued))
		q := b.policy.Queues["cpu"]
		q.Nodes = sbatch.NodeSizes{{CPUs: 64, Memory: 256 << 30}}
		b.policy.Queues["cpu"] = q
		for at := late; at < late+23*time.Hour; at += time.Hour {
			b.at(at).decide(seen(at, waits)).is(plan.Queued)
		}
	}
}

// Slurm gives its reasons again in its next round, which may be a minute after the end of a queue's trouble.
func TestI10EndOfAQueuesTroubleIsNoVerdictOnItsJobs(t *testing.T) {
	t.Parallel()
	never := job(sbatch.StatePending)
	never.Reason = "PartitionConfig"
	const noNode = "Requested node configuration is not available"
	b := given(t, rowIn(plan.Queued))
	b.at(late).decide(seen(late, never)).is(plan.Queued)
	asked := late + time.Hour
	b.at(asked).decide(seen(asked, never)).is(plan.Queued, plan.AskQueue)
	b.decide(plan.News{Canary: &plan.Canary{Refusal: noNode}}).is(plan.Queued)
	for at := asked; at <= late+23*time.Hour; at += time.Hour {
		b.at(at).decide(seen(at, never)).is(plan.Queued)
	}
	over := late + 25*time.Hour
	b.at(over).decide(seen(over, never)).is(plan.Queued, plan.AskQueue)
	b.decide(plan.News{Canary: &plan.Canary{}}).is(plan.Queued) // Slurm accepts jobs of the queue again
	b.at(over + time.Minute).decide(seen(over+time.Minute, never)).is(plan.Queued)
	b.at(over+time.Hour).decide(seen(over+time.Hour, never)).is(plan.Queued, plan.AskQueue)
	b.decide(plan.News{Canary: &plan.Canary{Failure: "no answer"}}).is(plan.Queued)
	b.at(over+2*time.Hour).decide(seen(over+2*time.Hour, never)).is(plan.Queued, plan.AskQueue)
	b.decide(plan.News{Canary: &plan.Canary{}}).is(plan.Stopping, plan.Cancel, plan.Fence)
}

// TestI10LaterReasonThatIsTheQueuesFaultWaits: Slurm first gives a reason that may be the bundle's fault.
func TestI10LaterReasonThatIsTheQueuesFaultWaits(t *testing.T) {
	t.Parallel()
	never := job(sbatch.StatePending)
	never.Reason = "BadConstraints"
	b := given(t, rowIn(plan.Queued))
	b.at(time.Minute).decide(seen(time.Minute, never)).is(plan.Queued)
	never.Reason = "InvalidAccount"
	b.at(time.Hour).decide(seen(time.Hour, never)).is(plan.Queued)
}

// A controller that has lost its state does not know the job, and accounting does not know its end for minutes.
func TestI10ReasonOfAJobThatIsGoneIsNoVerdict(t *testing.T) {
	t.Parallel()
	never := job(sbatch.StatePending)
	never.Reason = "BadConstraints"
	b := given(t, rowIn(plan.Queued)).at(late).decide(seen(late, never)).is(plan.Queued)
	for at := late + 10*time.Second; at < late+4*time.Minute; at += 10 * time.Second {
		n := seen(at)
		n.Canary = &plan.Canary{}
		if b.at(at).decide(n).decide(plan.News{AccountingFailure: "no answer"}); b.row.Phase != plan.Queued {
			t.Fatalf("%s: %s, want that the bridge still asks for the job's end", b.row.Phase, b.row.Reason)
		}
	}
	// If the job is there after all, so is its reason.
	at := late + 5*time.Minute
	b.at(at).decide(seen(at, never)).is(plan.Queued, plan.AskQueue)
	b.decide(plan.News{Canary: &plan.Canary{}}).is(plan.Stopping, plan.Cancel, plan.Fence)
}
