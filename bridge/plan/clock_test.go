package plan_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

var restarted = plan.News{Restarted: true}

func TestI3ClockSetBackCutsNoGraceShort(t *testing.T) {
	t.Parallel()
	const back = -2 * time.Hour
	b := given(t, rowIn(plan.Submitting)).at(back).decide(restarted).is(plan.Submitting)
	if b.row.SubmittedAt != b.now {
		t.Errorf("submitted at %s, want now", b.row.SubmittedAt)
	}
	b.at(back + 90*time.Second).decide(seen(back + 90*time.Second)).is(plan.Submitting)
	b.at(back+91*time.Second).decide(seen(back+91*time.Second)).is(plan.Submitting, plan.QueryAccounting)
}

// A row is due again within the longest pause of its phase, whatever the bridge noted before its restart.
func TestClockSetBackLengthensNoPause(t *testing.T) {
	t.Parallel()
	p := policy()
	longest := max(p.SubmitGrace, p.Settle, time.Minute)
	for phase, want := range map[plan.Phase]time.Duration{
		plan.Claiming: longest, plan.Staging: 6 * time.Hour, plan.Submitting: longest, plan.Queued: longest, plan.Running: longest,
		plan.Stopping: longest, plan.Collecting: longest, plan.Finalizing: p.LongestAckPause, plan.Done: p.KeepAfterAck,
	} {
		b := given(t, rowIn(phase), tomorrow).decide(restarted)
		if b.row.Phase != phase || b.row.DueAt.After(b.now.Add(want)) {
			t.Errorf("%s: in %s, due in %s, want %s at most", phase, b.row.Phase, b.row.DueAt.Sub(b.now), want)
		}
		if b.row.KeepUntil.After(b.now.Add(p.KeepAfterAck)) && phase == plan.Done {
			t.Errorf("files are kept until %s", b.row.KeepUntil)
		}
		for name, at := range map[string]time.Time{
			"since": b.row.PhaseSince, "submitted": b.row.SubmittedAt, "absent": b.row.AbsentAsOf, "ended": b.row.NoJobSince,
			"looked": b.row.RecordsReadAt, "offered": b.row.ReofferedAt, "stuck": b.row.ImpossibleSince, "cancelled": b.row.CancelledAt, "gone": b.row.RecordsGoneSince,
		} {
			if at.After(b.now) {
				t.Errorf("%s: %s is still to come", phase, name)
			}
		}
	}
}

func TestPauseOfTheOrdinaryLengthIsKept(t *testing.T) {
	t.Parallel()
	for phase, pause := range map[plan.Phase]time.Duration{
		plan.Staging: 20 * time.Minute, plan.Collecting: time.Minute, plan.Submitting: 90 * time.Second, plan.Finalizing: 10 * time.Minute, plan.Done: 24 * time.Hour,
	} {
		due := epoch.Add(pause)
		b := given(t, rowIn(phase), func(r *plan.Row) { r.DueAt = due }).decide(restarted)
		if b.row.DueAt != due {
			t.Errorf("%s: due in %s, want %s", phase, b.row.DueAt.Sub(epoch), pause)
		}
	}
}

// If the clock was set forward by a day, the disk did not have that day to settle. Nor did it settle
// without a reading of the records.
func TestI7DiskHasItsTimeToSettleAfterARestart(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Running), ended).at(24 * time.Hour).decide(restarted).is(plan.Running)
	b.decide(read(24*time.Hour, started(), nil)).is(plan.Running)
	b.at(24*time.Hour+10*time.Second).decide(read(24*time.Hour+10*time.Second, started(), exit(0))).is(plan.Collecting, plan.Collect)
	b.verdict(spool.CauseSucceeded, "")
	// Records that have settled need no more time.
	settled := func(r *plan.Row) { r.RecordsReadAt = r.NoJobSince.Add(10 * time.Second) }
	given(t, rowIn(plan.Running), ended, settled).at(24*time.Hour).decide(restarted).is(plan.Collecting, plan.Collect)
	// A live job needs none either.
	if b := given(t, rowIn(plan.Running)).at(24 * time.Hour).decide(restarted).is(plan.Running); !b.row.NoJobSince.IsZero() {
		t.Error("a restart ended a job")
	}
}

// Patience needs both time and tries: neither a clock that was set forward nor a burst of failures ends it alone.
func TestPatienceEndsAfterTimeAndTries(t *testing.T) {
	t.Parallel()
	for phase, patience := range map[plan.Phase]time.Duration{plan.Staging: 5 * time.Minute, plan.Collecting: 72 * time.Hour} {
		fail := plan.News{Staged: &plan.StageEnd{Outcome: plan.Outcome{Failure: "no"}}, Collected: &plan.Outcome{Failure: "no"}}
		tried := func(n int) func(*plan.Row) {
			return func(r *plan.Row) { r.Staged, r.FailedTries, r.FailingSince = nil, n, epoch }
		}
		var asks []plan.Kind
		if phase == plan.Collecting {
			asks = []plan.Kind{plan.Confirm}
		}
		given(t, rowIn(phase), tried(4)).at(100*patience).decide(fail).is(phase, asks...)
		given(t, rowIn(phase), tried(100)).at(patience).decide(fail).is(phase, asks...)
		given(t, rowIn(phase), tried(5)).at(patience + time.Second).decide(fail).is(plan.Finalizing)
	}
}

func TestStuckJobIsNotStoppedByAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	never := job(sbatch.StatePending)
	never.Reason = "PartitionConfig"
	b := given(t, rowIn(plan.Queued)).decide(seen(0, never)).is(plan.Queued)
	b.at(-time.Hour).decide(seen(-time.Hour, never)).is(plan.Queued)
	b.at(-time.Hour+5*time.Second).decide(seen(-time.Hour+5*time.Second, never)).is(plan.Queued, plan.AskQueue)
}

// DecidedAt is the time of the last change that the bridge shows to people.
func TestDecidedIsWhenTheReasonWasTaken(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Queued)).at(time.Minute).decide(seen(time.Minute, job(sbatch.StateConfiguring))).is(plan.Queued)
	if !b.row.DecidedAt.Equal(epoch) {
		t.Errorf("decided at %s for another state of the job", b.row.DecidedAt)
	}
	b.at(2 * time.Minute).decide(read(2*time.Minute, started(), nil)).is(plan.Running)
	if !b.row.DecidedAt.Equal(b.now) {
		t.Errorf("decided at %s, want now", b.row.DecidedAt)
	}
	b.at(3*time.Minute).decide(told(offered())).is(plan.Running, plan.Claim)
	if !b.row.DecidedAt.Equal(b.now) || b.row.PhaseSince.Equal(b.now) {
		t.Errorf("decided at %s, in its phase since %s: want a new reason in the old phase", b.row.DecidedAt, b.row.PhaseSince)
	}
}
