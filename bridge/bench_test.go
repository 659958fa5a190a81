package bridge

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

const manyRows = 10_000

// many are rows in mixed phases: of ten, one is staged and waits for room, six
// are queued, two run, and one waits for its acknowledgement.
func many(now time.Time) []plan.Row {
	rows := make([]plan.Row, manyRows)
	for i := range rows {
		r := plan.NewRow(now, "cpu", codalab.Message{
			Bundle: &codalab.RunBundle{
				UUID: fmt.Sprintf("0x%012x%020x", i, i), Type: codalab.TypeRun, OwnerID: "1", Command: "python train.py --epochs 100 --data data --seed 1",
				Metadata:     codalab.Metadata{"name": "train", "request_cpus": 4, "request_memory": "8g", "description": "", "tags": []string{"a"}},
				Dependencies: []codalab.RunDependency{{Dependency: codalab.Dependency{ChildPath: "data", ParentUUID: "0x1"}}},
			},
			Resources: &codalab.Resources{CPUs: 4, Memory: 8 << 30, DockerImage: "python:3.12"},
		})
		r.Phase, r.Reason, r.Times.Preparing = plan.Staging, "image and dependencies are ready", now
		r.Staged = &spool.Inputs{Image: "/shared/cache/x.sif", ImageDigest: "sha256:1"}
		if i%10 > 0 {
			r.Phase, r.Attempt, r.Generation, r.SubmittedAt = plan.Queued, 1, int64(i)+1, now
			r.SubmissionName = plan.SubmissionName(fmt.Sprintf("cl-ann-%012x.1-b1b2b3", i))
			r.Job = sbatch.Job{ID: sbatch.JobID(i) + 1, Name: string(r.SubmissionName), State: sbatch.StatePending, Reason: "Priority"}
			r.Job.Comment = fmt.Sprintf("codalab bundle=%s attempt=1 owner=1 bridge=b1b2b3 generation=%d", r.Bundle, r.Generation)
		}
		if i%10 > 6 {
			r.Phase, r.Job.State, r.Job.Nodes, r.Times.Running = plan.Running, sbatch.StateRunning, "n1", now
			r.Begun = &spool.Started{Token: "0123456789abcdef", Node: "n1", Job: r.Job.ID.String(), At: now}
		}
		if i%10 > 8 {
			r.Phase, r.DueAt = plan.Finalizing, now.Add(time.Hour)
			r.Verdict, r.Exit = &plan.Verdict{Cause: spool.CauseSucceeded}, &spool.Exit{Token: r.Begun.Token}
		}
		rows[i] = r
	}
	return rows
}

func manyPolicy() plan.Policy {
	return plan.Policy{
		Bridge: "b1b2b3", Owner: "ann", Queues: map[string]plan.Queue{"cpu": {Name: "cpu", Tag: "cpu", MaxInFlight: 8000}},
		SubmitGrace: time.Minute, OrphanGrace: 10 * time.Minute, LongestAckPause: time.Hour, StuckFor: time.Second, Accounting: true, MaxAttempts: 3,
	}
}

// ledgers are those that a benchmark is run with: SQLite's, and one that
// keeps nothing.
func ledgers(b *testing.B, now time.Time, bench func(b *testing.B, l Ledger)) {
	b.Helper()
	b.Run("sqlite", func(b *testing.B) {
		l, err := ledger.Open(b.Context(), filepath.Join(b.TempDir(), "ledger.db"))
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // the benchmark is over
		if err := l.Save(b.Context(), many(now)); err != nil {
			b.Fatal(err)
		}
		bench(b, l)
	})
	b.Run("none", func(b *testing.B) {
		rows := many(now)
		for i := range rows {
			rows[i].Version = 1
		}
		bench(b, &memory{rows: rows, generation: manyRows})
	})
}

func openMany(b *testing.B, l Ledger) *Bridge {
	b.Helper()
	bridge := &Bridge{Policy: manyPolicy(), Name: "ann", Ledger: l, Log: slog.New(slog.DiscardHandler)}
	if err := bridge.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	return bridge
}

func stepMany(b *testing.B, bridge *Bridge, now time.Time) {
	b.Helper()
	if _, _, err := bridge.Step(b.Context(), now); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkStep10000 is a step in which a hundred of ten thousand rows have
// news that changes them. With a snapshot, all jobs are compared with the rows
// too, as every six seconds.
func BenchmarkStep10000(b *testing.B) {
	now := time.Unix(1_800_000_000, 0)
	var snapshot sbatch.Snapshot
	for _, r := range many(now) {
		if r.InFlight() {
			snapshot.Jobs = append(snapshot.Jobs, r.Job)
		}
	}
	for name, seen := range map[string]bool{"news": false, "snapshot": true} {
		b.Run(name, func(b *testing.B) {
			ledgers(b, now, func(b *testing.B, l Ledger) {
				b.Helper()
				bridge := openMany(b, l)
				bridge.inbox.putSnapshot(snapshot)
				stepMany(b, bridge, now)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					at := now.Add(time.Duration(i) * time.Second)
					for j := range 100 {
						change(bridge, i*100+j, i, at)
					}
					if seen {
						bridge.inbox.putSnapshot(snapshot)
					}
					stepMany(b, bridge, at)
				}
			})
		})
	}
}

// change brings the n-th of the queued rows news that changes it.
func change(bridge *Bridge, n, step int, at time.Time) {
	n %= manyRows / 10 * 6
	row := n/6*10 + n%6 + 1
	bundle := fmt.Sprintf("0x%012x%020x", row, row)
	r := bridge.rows.get(bundle)
	job := r.Job
	job.Reason = fmt.Sprintf("Priority %d", step)
	bridge.inbox.put(bundle, func(n *plan.News) {
		n.Observation = &plan.Observation{SubmissionName: r.SubmissionName, Asked: at, Jobs: []sbatch.Job{job}}
	})
}

// BenchmarkOpen10000 is a restart: from the ledger's rows to the first step's
// decisions, saved.
func BenchmarkOpen10000(b *testing.B) {
	now := time.Unix(1_800_000_000, 0)
	ledgers(b, now, func(b *testing.B, l Ledger) {
		b.Helper()
		b.ReportAllocs()
		for b.Loop() {
			stepMany(b, openMany(b, l), now)
		}
	})
}

// BenchmarkPumps10000 are what the pumps ask of the view.
func BenchmarkPumps10000(b *testing.B) {
	now := time.Unix(1_800_000_000, 0)
	bridge := openMany(b, &memory{rows: many(now)})
	b.Run("in flight", func(b *testing.B) {
		for b.Loop() {
			bridge.view.inFlight()
		}
	})
	b.Run("check-in", func(b *testing.B) {
		for b.Loop() {
			bridge.CheckIn(plan.Queue{Name: "cpu"})
		}
	})
	b.Run("turn", func(b *testing.B) {
		for b.Loop() {
			bridge.view.nextTurns(now, 0)
		}
	})
}
