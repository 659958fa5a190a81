package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sim"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// benchSim measures the decision core: the simulation, a bridge's ledger, its step
// with 10,000 bundles of which a hundred have news, and its restart.
func benchSim(ctx context.Context) {
	dir := must(os.MkdirTemp("", "bench-sim-"))
	defer func() { _ = os.RemoveAll(dir) }() // a leftover has no meaning
	figure{name: "sim/seeds", value: seedsPerSecond(ctx), unit: "/s", bar: 10_000, atLeast: true}.print()
	book := must(ledger.Open(ctx, filepath.Join(dir, "ledger.db")))
	defer func() { _ = book.Close() }() // removed next
	figure{name: "sim/ledger_writes", value: writesPerSecond(ctx, book), unit: "/s"}.print()
	steps, restarts := tenThousand(ctx, book)
	figure{name: "sim/step_10000", value: median(steps) * 1000, unit: "ms", bar: 5}.print()
	figure{name: "sim/restart_10000", value: median(restarts), unit: "s", bar: 2}.print()
}

// seedsPerSecond simulates seeds on all processors for a while.
func seedsPerSecond(ctx context.Context) float64 {
	defer debug.SetGCPercent(debug.SetGCPercent(3200)) // as make sim does
	const lasting = 10 * time.Second
	var seed, done atomic.Uint64
	var group errgroup.Group
	start := time.Now()
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			for time.Since(start) < lasting {
				if r := sim.Run(ctx, 2_000_000+seed.Add(1), sim.Options{}); len(r.Violations) > 0 {
					return fmt.Errorf("seed %d breaks a promise: %s", r.Seed, r.Violations[0].Words)
				}
				done.Add(1)
			}
			return nil
		})
	}
	check(group.Wait())
	return float64(done.Load()) / time.Since(start).Seconds()
}

// writesPerSecond saves rows one by one; each is flushed to the disk.
func writesPerSecond(ctx context.Context, book *ledger.Ledger) float64 {
	const lasting = 3 * time.Second
	rows := []plan.Row{benchRow(999_999, plan.Queued)}
	start, n := time.Now(), 0
	for ; time.Since(start) < lasting; n++ {
		rows[0].Reason = fmt.Sprintf("decision %d", n)
		check(book.Save(ctx, rows))
	}
	rate := float64(n) / time.Since(start).Seconds()
	check(book.Delete(ctx, rows[0]))
	return rate
}

// tenThousand starts a bridge with 10,000 rows several times, up to its first decisions,
// and makes it decide steps in which a hundred of them have news. It returns the
// durations in seconds.
func tenThousand(ctx context.Context, book *ledger.Ledger) (steps, restarts []float64) {
	const all, news, rounds = 10_000, 100, 10
	phases := []plan.Phase{plan.Queued, plan.Running, plan.Queued, plan.Running, plan.Queued, plan.Running, plan.Queued, plan.Staging, plan.Finalizing, plan.Done}
	var rows []plan.Row
	var inFlight []string // bundles without news so far
	for i := range all {
		r := benchRow(i, phases[i%len(phases)])
		rows = append(rows, r)
		if r.InFlight() {
			inFlight = append(inFlight, r.Bundle)
		}
	}
	check(book.Save(ctx, rows))
	for range rounds {
		disk := &ringingDisk{}
		b := benchBridge(book, disk)
		step := func() {
			_, _, err := b.Step(ctx, time.Now().Round(0))
			check(err)
		}
		restarts = append(restarts, seconds(func() {
			check(b.Open(ctx))
			step()
		}))
		for range 6 {
			disk.ring(inFlight[:news])
			inFlight = inFlight[news:]
			check(b.Listen(time.Now().Round(0)))
			steps = append(steps, seconds(step))
		}
	}
	return steps, restarts
}

func benchRow(i int, phase plan.Phase) plan.Row {
	now := time.Now().Round(0)
	r := plan.NewRow(now, "cpu", codalab.Message{
		Type: codalab.MessageRun,
		Bundle: &codalab.RunBundle{
			UUID: fmt.Sprintf("0x%012x%020x", i+1, i), OwnerID: "1", Command: "python train.py --lr 0.1",
			Metadata: codalab.Metadata{"name": "train", "request_gpus": 1, "description": "a run of the benchmark"},
		},
		Resources: &codalab.Resources{CPUs: 1, Memory: 1 << 30, ImageReference: "python:3"},
	})
	r.Phase, r.Reason = phase, "the benchmark begins here"
	if phase == plan.Staging {
		return r
	}
	r.Staged = &spool.Inputs{SIF: "/shared/cache/x.sif"}
	r.Attempt.Number, r.Generation, r.SubmissionName = 1, int64(i+1), plan.SubmissionName(fmt.Sprintf("cl-ann-%012x.1-b1b2b3", i+1))
	r.OnDisk, r.Prepared, r.SubmittedAt = spool.NameAttempt(1, "b1b2b3"), true, now
	r.Job = sbatch.Job{ID: sbatch.JobID(i + 1), Name: string(r.SubmissionName), State: sbatch.StatePending, Reason: "Priority"}
	switch phase {
	case plan.Running:
		r.Begun, r.CommandBegan = &spool.Started{Token: "t"}, true
	case plan.Finalizing, plan.Done:
		r.Verdict = &plan.Verdict{Cause: spool.CauseSucceeded}
		r.Times.Finalizing, r.DueAt = now, now.Add(24*time.Hour)
	default: // tenThousand has no other phases
	}
	return r
}

func benchBridge(book *ledger.Ledger, disk *ringingDisk) *bridge.Bridge {
	return &bridge.Bridge{Config: bridge.Config{
		Policy: plan.Policy{
			Bridge: "b1b2b3", Owner: "ann", Layout: "/shared", Worker: sbatch.Program{Path: "/shared/bin/cl-worker"},
			Queues:      map[string]plan.Queue{"cpu": {Name: "cpu", Tag: "cpu"}},
			SubmitGrace: 90 * time.Second, RecordAge: 300 * time.Second, Accounting: true, Settle: 10 * time.Second,
			LongestAckPause: 10 * time.Minute, MaxAttempts: 3, KeepAfterAck: 24 * time.Hour,
		},
		Name: "bench", Hostname: "login", Ledger: book, Spool: disk, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Now().Round(0) },
	}}
}

// ringingDisk is a shared disk on which each bundle that rings has begun and ended.
type ringingDisk struct {
	bridge.Spool

	rang []spool.Ring
}

func (d *ringingDisk) ring(bundles []string) {
	for _, b := range bundles {
		d.rang = append(d.rang, spool.Ring{Bundle: b, Attempt: spool.NameAttempt(1, "b1b2b3")})
	}
}

// TakeRings returns the bundles that rang since the last call.
func (d *ringingDisk) TakeRings() ([]spool.Ring, error) {
	rang := d.rang
	d.rang = nil
	return rang, nil
}

// ReadRecords finds the records of a bundle that has ended.
func (d *ringingDisk) ReadRecords(string, spool.AttemptName) (spool.Records, error) {
	code := 0
	return spool.Records{Started: &spool.Started{Token: "t", Node: "n1"}, Exit: &spool.Exit{Token: "t", Cause: spool.CauseSucceeded, ExitCode: &code}}, nil
}
