package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// beat is a reading of the records of a worker that last wrote its status at a time.
func beat(at, written time.Duration) plan.News {
	n := read(at, started(), nil)
	n.Records.Status = &spool.Status{Token: "token-1", At: epoch.Add(written), CommandStarted: epoch}
	return n
}

// A site's squeue lacks a running job for a day, with exit status 0, and no accounting database knows better.
func TestI3WorkerThatWritesOutranksASnapshotThatLacksItsJob(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Running))
	b.policy.Accounting = false
	at := late
	b.at(at).decide(beat(at, at))
	for range 24 * 60 {
		b.at(at).decide(seen(at))
		written := at
		at += spool.LongestStatusPause
		b.at(at).decide(beat(at, written)).is(plan.Running)
	}
	b.at(at).decide(seen(at)) // the worker has died
	silent := at + 2*spool.LongestStatusPause + b.policy.Settle
	b.at(silent - time.Second).decide(beat(silent-time.Second, at-spool.LongestStatusPause)).is(plan.Running)
	b.at(silent).decide(beat(silent, at-spool.LongestStatusPause)).is(plan.Collecting, plan.Collect).verdict(spool.CausePlatform, "its worker left no exit record")
}

// The ledger does not store the status. The bridge crashes again and again, and the first reading after a start may fail
// (SEED=1055558).
func TestI3WorkerThatWritesOutranksASnapshotAlsoForARestartedBridge(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Running))
	b.policy.Accounting = false
	for at := late; at < late+time.Hour; at += 90 * time.Second {
		b.row.Status = nil
		b.at(at).decide(restarted)
		if at%time.Minute == 0 {
			b.at(at + time.Second).decide(plan.News{RecordsFailure: "input/output error"})
		}
		b.at(at + 2*time.Second).decide(beat(at+2*time.Second, at-5*time.Second)).decide(seen(at + 2*time.Second))
		for _, after := range []time.Duration{3 * time.Second, 20 * time.Second, 40 * time.Second} {
			b.at(at + after).decide(beat(at+after, at-5*time.Second)).is(plan.Running)
		}
	}
	b.row.Status = nil // the worker has died
	silent := late + 2*time.Hour
	b.at(silent).decide(restarted).decide(beat(silent, late+time.Hour)).decide(seen(silent))
	silent += b.policy.Settle
	b.at(silent).decide(beat(silent, late+time.Hour)).is(plan.Collecting, plan.Collect).verdict(spool.CausePlatform, "its worker left no exit record")
}

// A bridge that was away for an hour reads an old status.
func TestI3OldStatusShowsNoLife(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Running))
	b.policy.Accounting = false
	at := time.Hour
	b.at(at).decide(beat(at, late)).decide(seen(at))
	settled := at + b.policy.Settle
	b.at(settled).decide(beat(settled, late)).is(plan.Collecting, plan.Collect).verdict(spool.CausePlatform, "its worker left no exit record")
}

// Squeue does not list a pack that runs, and accounting shows it RUNNING. A member begins minutes later, and the disk does not
// show its first status yet (SEED=3400190205).
func TestI3WorkerThatBeginsOutranksEarlierSnapshotsThatLackItsJob(t *testing.T) {
	t.Parallel()
	for _, found := range []string{"by reading", "by fencing"} {
		t.Run(found, func(t *testing.T) {
			t.Parallel()
			b := given(t, rowIn(plan.Queued), func(r *plan.Row) { r.Shared, r.Pack = true, true })
			b.at(late).decide(seen(late)).is(plan.Queued, plan.ReadRecords)
			at := late + b.policy.Settle
			b.at(at).decide(read(at, nil, nil)).is(plan.Queued, plan.QueryAccounting)
			b.decide(accounted(at, job(sbatch.StateRunning))).is(plan.Queued)

			at = late + b.policy.RecordAge + time.Second
			began := &spool.Started{Token: "token-1", Node: "n1", Job: "7", Submission: "b1b2b3.1", At: epoch.Add(at)}
			if found == "by fencing" {
				b.at(at).decide(fencing(*began)).is(plan.Running)
			} else {
				b.at(at).decide(read(at, began, nil)).is(plan.Running)
			}
			silent := func(at time.Duration) *bench {
				b.at(at).decide(read(at, began, nil)).is(plan.Running, plan.QueryAccounting)
				return b.decide(accounted(at, job(sbatch.StateRunning)))
			}
			b.decide(seen(at)).is(plan.Running, plan.ReadRecords)
			silent(at + 2*spool.LongestStatusPause + b.policy.Settle).is(plan.Running)
			silent(at+b.policy.RecordAge+time.Second).is(plan.Collecting, plan.Collect).verdict(spool.CausePlatform, "its worker left no exit record")
		})
	}
}

// Squeue does not list a pack that runs, and there is no accounting. A member begins, and the disk refuses its first status for a minute
// (SEED=4300684304).
func TestI3WorkerThatBeginsHasTimeForItsFirstStatusIfNoSnapshotShowsItsJob(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%t", killed), func(t *testing.T) {
			t.Parallel()
			began := &spool.Started{Token: "token-1", Node: "n1", Job: "7", Submission: "b1b2b3.1", At: epoch.Add(late)}
			ofPack := func(r *plan.Row) { r.Shared, r.Pack = true, true }
			b := given(t, rowIn(plan.Queued), ofPack)
			b.policy.Accounting = false
			b.at(late).decide(read(late, began, nil)).is(plan.Running)
			b.decide(seen(late)).is(plan.Running, plan.ReadRecords)
			phase, cause, words := plan.Running, spool.CausePlatform, "its worker left no exit record"
			if killed {
				phase, cause, words = plan.Stopping, spool.CauseUser, codalab.KillRequested
				b.at(late + time.Second).decide(told(kill)).is(phase)
			}
			silent := late + 2*spool.LongestStatusPause + b.policy.Settle
			dead := *b
			dead.at(silent - time.Second).decide(read(silent-time.Second, began, nil)).is(phase)
			dead.at(silent).decide(read(silent, began, nil)).is(plan.Collecting, plan.Collect).verdict(cause, words)

			at := late + time.Minute
			alive := beat(at, at)
			alive.Records.Started = began
			b.at(at).decide(alive)
			b.at(silent).decide(seen(silent))
			b.at(silent + b.policy.Settle).decide(read(silent+b.policy.Settle, began, nil)).is(phase)
		})
	}
}

// A record shows a begin that was an hour ago: its worker may be gone for as long.
func TestI3OldBeginShowsNoLife(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Queued))
	b.policy.Accounting = false
	at := time.Hour
	b.at(at).decide(seen(at))
	settled := at + b.policy.Settle
	b.at(settled).decide(read(settled, started(), nil)).is(plan.Collecting, plan.Collect).verdict(spool.CausePlatform, "its worker left no exit record")
}

// Squeue does not list a pack. Its node fails, and accounting shows that before it shows the pack's next run. A member begins in that run
// (SEED=3750190796).
func TestI3WorkerThatBeginsOutranksTheEndOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Queued), func(r *plan.Row) { r.Shared, r.Pack = true, true })
	b.at(late).decide(seen(late)).is(plan.Queued, plan.ReadRecords)
	at := late + b.policy.Settle
	b.at(at).decide(read(at, nil, nil)).is(plan.Queued, plan.QueryAccounting)
	failed, again := job(sbatch.StateNodeFail), job(sbatch.StateRunning)
	failed.Start, again.Start, again.Nodes = epoch, epoch.Add(at), "n2"
	b.decide(accounted(at, failed)).is(plan.Queued)

	at += 5 * time.Second
	began := &spool.Started{Token: "token-1", Node: "n2", Job: "7", Submission: "b1b2b3.1", At: epoch.Add(at)}
	b.at(at).decide(read(at, began, nil)).is(plan.Running)
	b.decide(seen(at)).is(plan.Running, plan.ReadRecords)
	at += 2*spool.LongestStatusPause + b.policy.Settle
	b.at(at).decide(read(at, began, nil)).is(plan.Running, plan.QueryAccounting)
	b.decide(plan.News{Accounting: observation(at, failed, again)}).is(plan.Running)
	b.row.DueAt = time.Time{}
	b.at(at + time.Minute).decide(plan.News{Accounting: observation(at+time.Minute, failed)}).is(plan.Running) // it may end after the reading
	at += time.Minute + b.policy.Settle
	b.at(at).decide(read(at, began, nil)).is(plan.Collecting, plan.Collect).verdict(spool.CausePlatform, "The node of Slurm job 7 failed")
}

// Slurm shows the end itself: a node that was cut off may go on writing, and is not waited for.
func TestI3EndThatSlurmShowsDoesNotWaitForTheWorker(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Running)).at(late).decide(beat(late, late))
	b.decide(seen(late, job(sbatch.StateNodeFail)))
	settled := late + b.policy.Settle
	b.at(settled).decide(beat(settled, settled)).is(plan.Collecting, plan.Collect).verdict(spool.CausePlatform, "The node of Slurm job 7 failed")
}
