package bridge

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// quietDisk is a shared disk on which no worker has anything new to say. It counts the readings.
type quietDisk struct {
	Spool

	answers, reads atomic.Int64
}

func (d *quietDisk) TakeRings() ([]spool.Ring, error) {
	d.answers.Add(1)
	return nil, nil
}

func (d *quietDisk) ReadRecords(string, spool.AttemptName) (spool.Records, error) {
	d.reads.Add(1)
	return spool.Records{}, nil
}

// sameJobs is a Slurm that always shows the same jobs.
type sameJobs struct {
	sbatch.Scheduler

	jobs []sbatch.Job
}

func (s *sameJobs) Observe(_ context.Context, now time.Time) (sbatch.Snapshot, error) {
	return sbatch.Snapshot{Asked: now, Jobs: s.jobs}, nil
}

// withoutNews runs the watchers of a bridge with rows in a phase, about which nothing new arrives. It
// returns how often the bridge answers the doorbell in a minute, and how many records it reads.
func withoutNews(t *testing.T, n int, phase plan.Phase, state sbatch.State) (answers, reads int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().Round(0)
		disk, slurm := &quietDisk{}, &sameJobs{}
		rows := make([]plan.Row, n)
		for i := range rows {
			r := plan.Row{Bundle: bundleName(i), Phase: phase, PhaseSince: now}
			r.Attempt = plan.Attempt{Number: 1, OnDisk: "1-b1b2b3", SubmissionName: plan.SubmissionName("cl-ann-" + r.Bundle), SubmittedAt: now, Prepared: true}
			r.Job = sbatch.Job{ID: sbatch.JobID(i + 1), Name: string(r.SubmissionName), State: state, Submitted: now}
			if phase == plan.Running {
				r.Begun = &spool.Started{Token: "t", Node: "n1", Job: r.Job.ID.String()}
			}
			rows[i], slurm.jobs = r, append(slurm.jobs, r.Job)
		}
		b := openedWith(t, Config{
			Spool: disk, Scheduler: slurm, Now: time.Now,
			ObserveEvery: 6 * time.Second, DoorbellEvery: 350 * time.Millisecond, ReadEvery: 5 * time.Second,
		}, rows)
		for _, order := range [][]turn{b.board.view.reading.begun, b.board.view.reading.turns} {
			for i := range order {
				order[i].resumed = false // as when they were all read once
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		g, ctx := errgroup.WithContext(ctx)
		r := b.runner(ctx, g)
		g.Go(func() error { return b.loop(ctx, r) })
		g.Go(func() error { return b.slurm.run(ctx, b.Now) })
		g.Go(func() error { return b.records.watchDoorbell(ctx, b.DoorbellEvery, b.Log) })
		g.Go(func() error { return b.records.poll(ctx) })
		time.Sleep(time.Minute + 50*time.Millisecond) // the minute begins and ends between two ticks of the watchers
		answers, reads = disk.answers.Load(), disk.reads.Load()
		time.Sleep(time.Minute)
		answers, reads = disk.answers.Load()-answers, disk.reads.Load()-reads
		cancel()
		_ = g.Wait()
	})
	return answers, reads
}

func bundleName(i int) string { return fmt.Sprintf("0x%032x", i) }

// The shared disk's servers feel every request: a bridge with ten thousand bundles must not cost more of
// them than one with a thousand, and jobs that wait for days nothing at all.
func TestBridgeAsksTheSharedDiskNoMoreWithMoreRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		phase          plan.Phase
		state          sbatch.State
		answers, reads int64 // in a minute
	}{
		{plan.Queued, sbatch.StatePending, 0, 0},
		{plan.Running, sbatch.StateRunning, 172, 120},
	} {
		for _, n := range []int{1_000, 10_000} {
			t.Run(fmt.Sprintf("%d %s %s", n, c.phase, c.state), func(t *testing.T) {
				t.Parallel()
				answers, reads := withoutNews(t, n, c.phase, c.state)
				if answers > c.answers || reads > c.reads {
					t.Errorf("%d rows that are %s with jobs that are %s: the doorbell is answered %d times a minute and %d records are read; want %d and %d at most",
						n, c.phase, c.state, answers, reads, c.answers, c.reads)
				}
			})
		}
	}
}
