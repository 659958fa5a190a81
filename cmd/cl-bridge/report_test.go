package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/admin/costs"
	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// spent is a site whose bridge has run two bundles: job 4711 of an hour, and job 4712 of a day before, for two days.
func spent(t *testing.T) restored {
	t.Helper()
	r := restore(t, "")
	book := lockLedger(t, r.where)
	for n, end := range []time.Time{noon.Add(-time.Hour), noon.Add(-48 * time.Hour)} {
		row := rowAt(n+1, plan.Collecting, 1, int64(n+1))
		row.Run, row.Queue = &codalab.RunBundle{UUID: row.Bundle, OwnerID: "0xann"}, "cpu"
		row.Resources = codalab.Resources{CPUs: 2, Memory: 1 << 30}
		row.Attempt.SubmittedAt, row.Attempt.EndedAt = end.Add(-2*time.Hour), end
		row.Attempt.Begun = &spool.Started{Node: "n1", At: end.Add(-time.Hour)}
		row.Attempt.Job = sbatch.Job{ID: sbatch.JobID(4711 + n), State: sbatch.StateRunning, Nodes: "n1"}
		row.Attempt.Exit = &spool.Exit{Cause: spool.CauseSucceeded, Usage: spool.Usage{UserSeconds: 1800}}
		if err := book.Save(t.Context(), []plan.Row{row}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// account has sacct print this.
func (r restored) account(t *testing.T, out string) {
	t.Helper()
	testenv.WriteProgram(t, filepath.Join(string(r.slurm), "sacct"), []byte("#!/bin/sh\necho \"$*\" >>${0%/*}/asked\n"+out))
}

func TestReportJoinsTheLedgerAndAccounting(t *testing.T) {
	t.Parallel()
	r := spent(t)
	start := noon.Add(-2 * time.Hour).Unix()
	r.account(t, fmt.Sprintf("echo '4711|COMPLETED|%d|%d|3602|billing=2,cpu=2,mem=1G,node=1|3600000'\n", start, start+3602))
	out, err := command(t, "report", "--config", r.config, "--json")
	var found costs.Report
	if err != nil || json.Unmarshal([]byte(out), &found) != nil || len(found.Jobs) != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	older, newer := found.Jobs[0], found.Jobs[1]
	if newer.Bundle != bundleNo(1) || older.Source != costs.FromBridge || older.ElapsedSeconds != 3600 || older.CPUEfficiency != .25 {
		t.Errorf("%s", out)
	}
	if newer.Source != costs.FromSlurm || newer.ElapsedSeconds != 3602 || newer.EnergyJoules == nil || *newer.EnergyJoules != 3_600_000 {
		t.Errorf("%s", out)
	}
	if found.Note != "Slurm's accounting does not know 1 of the jobs, whose times are the bridge's." {
		t.Errorf("note %q", found.Note)
	}
	for _, args := range []string{"--by user", "--by queue", "--by group", "--csv", "--csv --by user", "--since 36h", "--since 2026-11-01 --until 2026-11-19"} {
		out, err := command(t, append([]string{"report", "--config", r.config}, strings.Fields(args)...)...)
		if err != nil || out == "" {
			t.Errorf("%s: %v %s", args, err, out)
		}
	}
	asked, err := os.ReadFile(filepath.Join(string(r.slurm), "asked"))
	if err != nil || bytes.Count(asked, []byte("\n")) != 8 {
		t.Errorf("%v: sacct was not run once for each of 8 reports: %s", err, asked)
	}
}

// The steps of all jobs take the database longer, and a site without sensors needs none of them.
func TestReportAsksForStepsWhereSlurmMeasuresEnergy(t *testing.T) {
	t.Parallel()
	r := spent(t)
	start := noon.Add(-2 * time.Hour).Unix()
	r.account(t, fmt.Sprintf("echo '4711|COMPLETED|%[1]d|%[2]d|3602|billing=2,cpu=2,mem=1G,node=1|'; case $* in *--allocations*) ;; *) echo '4711.batch|COMPLETED|%[1]d|%[2]d|3602|cpu=2,mem=1G,node=1|7200' ;; esac\n", start, start+3602))
	dir := spool.Layout(r.shared).BridgeDir()
	testenv.Must(t, os.MkdirAll(filepath.Dir(dir), 0o755))
	held, err := lease.Acquire(t.Context(), dir, lease.Holder{Bridge: r.id}, func(lease.Holder) bool { return true }, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, measured := range []bool{false, true} {
		h := heartbeat.Heartbeat{At: noon, Condition: bridge.Condition{Settings: &sbatch.Settings{Energy: measured}}}
		if err := held.Renew(t.Context(), heartbeat.Status{Last: &h}); err != nil {
			t.Fatal(err)
		}
		out, err := command(t, "report", "--config", r.config, "--json")
		var found costs.Report
		if err != nil || json.Unmarshal([]byte(out), &found) != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if joules := found.Total.EnergyJoules; measured != (joules != nil && *joules == 7200) || found.Total.Unaccounted != 1 {
			t.Errorf("measured %v: %s", measured, out)
		}
	}
}

// A report without the database is better than none, and says what it lacks.
func TestReportSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	r := spent(t)
	for out, want := range map[string]string{
		"echo 'sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection' >&2; exit 1\n": "Slurm's accounting database does not answer: ",
		"printf '4711|COMPL'\n": "Slurm's accounting database does not answer: ",
		"echo 'Slurm accounting storage is disabled' >&2; exit 1\n": "This site has no accounting database. All times are the bridge's, and energy is not known.",
		"": "Slurm's accounting does not know 2 of the jobs, whose times are the bridge's.",
	} {
		r.account(t, out)
		got, err := command(t, "report", "--config", r.config)
		if err != nil || !strings.Contains(got, want) || !strings.Contains(got, "2 jobs of 2 bundles: 4.00 CPU-hours") {
			t.Errorf("%v, want %q:\n%s", err, want, got)
		}
	}
}

func TestReportRefusesWhatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	r := spent(t)
	for args, want := range map[string]string{
		"--by node":                             "--by: want user, queue or group, not \"node\"",
		"--since yesterday":                     "--since: \"yesterday\" is no time: want one such as 12h, 30d or 2042-03-14",
		"--since -3d":                           "is no time",
		"--until soon":                          "--until: \"soon\" is no time",
		"--since 2026-11-19 --until 2026-11-19": "--since is not before --until",
		"--csv --json":                          "give --json or --csv, not both",
	} {
		_, err := command(t, append([]string{"report", "--config", r.config}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) || program.Code(t.Context(), err) != program.ExitUsage {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
