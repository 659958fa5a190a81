package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/admin/costs"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// benchReport measures cl-bridge report of 100,000 bundles, of which sacct knows each. A file stands in for sacct; what
// the real one takes for its rows is a figure of its own.
func benchReport(ctx context.Context, dir string) {
	const rounds = 5
	bundles := 10 * inFlight()
	config := filepath.Join(dir, "bridge.toml")
	text := strings.NewReplacer("SERVER", "http://127.0.0.1:1", "DIR", dir, "IMAGES", dir, "[slurm]", fmt.Sprintf("[slurm]\nbin = %q", dir)).Replace(coreConfig)
	check(os.WriteFile(config, []byte(text), 0o600))
	check(os.WriteFile(filepath.Join(dir, "password"), []byte(corePassword), 0o600))
	writeCharges(ctx, dir, bundles)
	var took, cpu []float64
	for range rounds {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(must(os.Executable())), "cl-bridge"),
			"report", "--config", config, "--since", "10000d", "--by", "user", "--json")
		cmd.Stdout = &out
		u := measure(cmd, dir)
		took, cpu = append(took, u.wall), append(cpu, u.cpu)
		var r costs.Report
		check(json.Unmarshal(out.Bytes(), &r))
		if r.Total.Bundles != bundles || r.Total.Unaccounted != 0 {
			check(fmt.Errorf("the report has %+v", r.Total))
		}
	}
	figure{name: fmt.Sprintf("slurm/report_%d", bundles), value: median(took), unit: "s", bar: 5}.print()
	figure{name: fmt.Sprintf("slurm/report_%d_cpu", bundles), value: median(cpu), unit: "s"}.print()
	benchAccounting(ctx)
}

// reportedFrom is the end of the first bundle in a report.
func reportedFrom() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// writeCharges writes a ledger with bundles of fifty owners that have ended, and a program sacct that knows them.
func writeCharges(ctx context.Context, dir string, bundles int) {
	const owners, atOnce = 50, 1000
	l := must(ledger.Open(ctx, filepath.Join(dir, "ledger.db")))
	answer := must(os.Create(filepath.Join(dir, "answer")))
	for first := 1; first <= bundles; first += atOnce {
		var rows []plan.Row
		for id := first; id < min(first+atOnce, bundles+1); id++ {
			start := reportedFrom().Add(time.Duration(id) * time.Second)
			end := start.Add(time.Hour)
			rows = append(rows, plan.Row{
				Bundle: fmt.Sprintf("0x%032x", id), Queue: "cpu", Phase: plan.Done, OfferedAt: start.Add(-time.Minute), DecidedAt: end,
				Run:       &codalab.RunBundle{OwnerID: fmt.Sprintf("0xowner%d", id%owners), OwnerName: fmt.Sprintf("owner%d", id%owners)},
				Resources: codalab.Resources{CPUs: 4, GPUs: 1, Memory: 8 << 30},
				Attempt: plan.Attempt{
					Number: 1, Generation: int64(id), SubmittedAt: start.Add(-time.Minute), EndedAt: end,
					Job: sbatch.Job{ID: sbatch.JobID(id)}, Begun: &spool.Started{Node: "node0417", At: start}, Exit: &spool.Exit{Cause: spool.CauseSucceeded},
				},
			})
			must(fmt.Fprintf(answer, "%d|COMPLETED|%d|%d|3600|billing=4,cpu=4,gres/gpu=1,mem=8G,node=1|0\n", id, start.Unix(), end.Unix()))
		}
		check(l.Save(ctx, rows))
	}
	check(answer.Close())
	check(l.Close())
	check(os.WriteFile(filepath.Join(dir, "sacct"), []byte("#!/bin/sh\nexec cat "+sbatch.Quote(filepath.Join(dir, "answer"))+"\n"), 0o700))
}

// benchAccounting measures the question of a report at the real accounting database, about all jobs that the researcher
// has had on the cluster.
func benchAccounting(ctx context.Context) {
	cluster := slurmcluster.Chosen()
	cmd := exec.CommandContext(ctx, filepath.Join(cluster.Bin, "sacct"), "--allocations", "--parsable2", "--noheader", "--duplicates",
		"--starttime=now-365days", "--format=JobID,State,Start,End,ElapsedRaw,AllocTRES,ConsumedEnergyRaw") // as sbatch.Client.QueryCharges
	cmd.Env, cmd.Dir, cmd.SysProcAttr = cluster.Env(), "/", &syscall.SysProcAttr{Credential: researcherAccount()}
	var said string
	took := seconds(func() { said = output(cmd) })
	figure{name: fmt.Sprintf("slurm/sacct_of_%d_jobs", strings.Count(said, "\n")), value: took, unit: "s"}.print()
}
