package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sim"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// benchSim measures the decision core: the simulation, a step of a bridge with
// 10,000 bundles of which a hundred have news, its restart, and its ledger.
func benchSim(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "bench-sim-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover has no meaning
	seeds, err := seedsPerSecond(ctx)
	if err != nil {
		return err
	}
	if err := (figure{name: "sim/seeds", value: seeds, unit: "/s", bar: 10_000, barText: "10000", atLeast: true}).print(out); err != nil {
		return err
	}
	book, err := ledger.Open(ctx, filepath.Join(dir, "ledger.db"))
	if err != nil {
		return err
	}
	defer book.Close() //nolint:errcheck // removed next
	writes, err := writesPerSecond(ctx, book)
	if err != nil {
		return err
	}
	steps, restarts, err := tenThousand(ctx, book)
	if err != nil {
		return err
	}
	for _, f := range []figure{
		{name: "sim/ledger_writes", value: writes, unit: "/s", barText: "-", atLeast: true},
		{name: "sim/step_10000", value: median(steps), unit: "ms", bar: 5, barText: "5"},
		{name: "sim/restart_10000", value: median(restarts), unit: "s", bar: 2, barText: "2"},
	} {
		if err := f.print(out); err != nil {
			return err
		}
	}
	return nil
}

// seedsPerSecond runs seeds on all cores for a while.
func seedsPerSecond(ctx context.Context) (float64, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(3200)) // as make sim does
	const lasting = 10 * time.Second
	var seed, done atomic.Uint64
	var wg sync.WaitGroup
	errs := make(chan error, runtime.GOMAXPROCS(0))
	start := time.Now()
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for time.Since(start) < lasting {
				r, err := sim.Run(ctx, 2_000_000+seed.Add(1), sim.Options{})
				if err == nil && len(r.Violations) > 0 {
					err = fmt.Errorf("seed %d breaks a promise: %s", r.Seed, r.Violations[0].Words)
				}
				if err != nil {
					errs <- err
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
	}
	return float64(done.Load()) / time.Since(start).Seconds(), nil
}

// writesPerSecond saves rows one by one, each flushed to the disk.
func writesPerSecond(ctx context.Context, book *ledger.Ledger) (float64, error) {
	const lasting = 3 * time.Second
	rows := []plan.Row{benchRow(999_999, plan.Queued)}
	start, n := time.Now(), 0
	for ; time.Since(start) < lasting; n++ {
		rows[0].Reason = fmt.Sprintf("decision %d", n)
		if err := book.Save(ctx, rows); err != nil {
			return 0, err
		}
	}
	rate := float64(n) / time.Since(start).Seconds()
	return rate, book.Delete(ctx, rows[0])
}

// tenThousand starts a bridge with 10,000 rows again and again, and has it
// decide steps in which a hundred of them have news. Times are in milliseconds
// for a step, and in seconds for a start up to its first decisions.
func tenThousand(ctx context.Context, book *ledger.Ledger) (steps, restarts []float64, err error) {
	const all, news, rounds = 10_000, 100, 10
	phases := []plan.Phase{plan.Queued, plan.Running, plan.Queued, plan.Running, plan.Queued, plan.Running, plan.Queued, plan.Staging, plan.Finalizing, plan.Done}
	var rows []plan.Row
	var flying []string // that have not rung yet
	for i := range all {
		r := benchRow(i, phases[i%len(phases)])
		rows = append(rows, r)
		if r.InFlight() {
			flying = append(flying, r.Bundle)
		}
	}
	if err := book.Save(ctx, rows); err != nil {
		return nil, nil, err
	}
	for range rounds {
		disk := &benchDisk{}
		b := benchBridge(book, disk)
		start := time.Now()
		if err := b.Open(ctx); err != nil {
			return nil, nil, err
		}
		if _, _, err := b.Step(ctx, time.Now().Round(0)); err != nil {
			return nil, nil, err
		}
		restarts = append(restarts, time.Since(start).Seconds())
		for range 6 {
			disk.ring(flying[:news])
			flying = flying[news:]
			if err := b.Listen(); err != nil {
				return nil, nil, err
			}
			start := time.Now()
			if _, _, err := b.Step(ctx, time.Now().Round(0)); err != nil {
				return nil, nil, err
			}
			steps = append(steps, float64(time.Since(start).Microseconds())/1000)
		}
	}
	return steps, restarts, nil
}

func benchRow(i int, phase plan.Phase) plan.Row {
	now := time.Now().Round(0)
	r := plan.NewRow(now, "cpu", codalab.Message{
		Type: codalab.MessageRun,
		Bundle: &codalab.RunBundle{
			UUID: fmt.Sprintf("0x%012x%020x", i+1, i), OwnerID: "1", Command: "python train.py --lr 0.1",
			Metadata: codalab.Metadata{"name": "train", "request_gpus": 1, "description": "a run of the benchmark"},
		},
		Resources: &codalab.Resources{CPUs: 1, Memory: 1 << 30, DockerImage: "python:3"},
	})
	r.Phase, r.Reason = phase, "the benchmark begins here"
	if phase == plan.Staging {
		return r
	}
	r.Staged = &spool.Inputs{Image: "/shared/cache/x.sif"}
	r.Attempt, r.Generation, r.SubmissionName = 1, int64(i+1), plan.SubmissionName(fmt.Sprintf("cl-ann-%012x.1-b1b2b3", i+1))
	r.Prepared, r.Submitted = true, now
	r.Job = sbatch.Job{ID: sbatch.JobID(i + 1), Name: string(r.SubmissionName), State: sbatch.StatePending, Reason: "Priority"}
	switch phase { //nolint:exhaustive // those of tenThousand
	case plan.Running:
		r.Begun = &spool.Started{Token: "t"}
	case plan.Finalizing, plan.Done:
		r.Verdict = &plan.Verdict{Cause: spool.CauseSucceeded}
		r.Times.Finalizing, r.Due = now, now.Add(24*time.Hour)
	}
	return r
}

func benchBridge(book *ledger.Ledger, disk *benchDisk) *bridge.Bridge {
	return &bridge.Bridge{
		Policy: plan.Policy{
			Bridge: "b1b2b3", Owner: "ann", Layout: "/shared", Worker: "/shared/bin/cl-worker",
			Queues:      map[string]plan.Queue{"cpu": {Name: "cpu", Tag: "cpu"}},
			SubmitGrace: 90 * time.Second, RecordAge: 300 * time.Second, Accounting: true, Settle: 10 * time.Second,
			AckPatience: 10 * time.Minute, MaxAttempts: 3, KeepAfterAck: 24 * time.Hour,
		},
		Name: "bench", Hostname: "login", Ledger: book, Spool: disk, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Now().Round(0) },
	}
}

// benchDisk is a disk on which bundles begin, and end, as they ring.
type benchDisk struct {
	bridge.Spool

	rang []spool.Member
}

func (d *benchDisk) ring(bundles []string) {
	for _, b := range bundles {
		d.rang = append(d.rang, spool.Member{Bundle: b, Attempt: 1})
	}
}

// Rang returns who rang.
func (d *benchDisk) Rang() ([]spool.Member, error) {
	rang := d.rang
	d.rang = nil
	return rang, nil
}

// Look finds a start and an end.
func (d *benchDisk) Look(string, int) (spool.Records, error) {
	code := 0
	return spool.Records{Started: &spool.Started{Token: "t", Node: "n1"}, Exit: &spool.Exit{Token: "t", Cause: spool.CauseSucceeded, ExitCode: &code}}, nil
}
