package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jmoiron/sqlx"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/pipenet"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// A day has daily bundles, one at each time that lies bundleEvery after another's. Each runs for
// runsFor.
const (
	daily       = 100_000
	bundleEvery = 24 * time.Hour / daily
	runsFor     = 30 * time.Second
)

// benchDay measures a bridge that handles 100,000 bundles a day, in simulated time. Server, bridge, Slurm,
// workers and the user are one process in a bubble of testing/synctest, whose clock advances as soon as
// all of them wait. So a day takes as long as its computations, and every timer fires as often as on a
// real day. The cost of waiting (ticks of the runtime, switches of processes) does not count.
//
// A whole day takes three quarters of an hour on two cores. So benchDay simulates seven minutes twice: on
// a fresh site, and on one where 100,000 bundles have ended since yesterday. Their rows and files exist,
// and are removed at the rate at which new bundles come. With LONG=1 it simulates the whole day.
func benchDay(ctx context.Context, dir, images, image string) {
	const lived = daily / 192
	if os.Getenv("LONG") != "" {
		simulateDay(ctx, filepath.Join(dir, "long"), images, image, 0, daily).print("_long", nil)
		return
	}
	fresh := simulateDay(ctx, filepath.Join(dir, "fresh"), images, image, 0, lived)
	simulateDay(ctx, filepath.Join(dir, "full"), images, image, 10*inFlight(), lived).print("", &fresh)
}

// day has the costs of a simulated part of a day.
type day struct {
	// Bundles is the number of simulated bundles, and Delivered the number of those that are ready on the
	// server.
	Bundles, Delivered int
	// Simulated is the simulated time, Took the real time, and CPU the processor time of the whole
	// process, in seconds.
	Simulated, Took, CPU float64
	// Memory is the largest resident memory of the whole process since its start, in MB.
	Memory float64
	// Row is the number of bytes of a bundle in the ledger until its row is removed, History the number
	// after that.
	Row, History float64
	// Ops is the number of operations on the shared disk a minute, SweepOps that of one sweep; both are 0
	// if they cannot be counted.
	Ops, SweepOps float64
}

// print prints the figures of a part of a day, compared with those of a fresh site.
func (d day) print(suffix string, fresh *day) {
	if d.Delivered != d.Bundles {
		check(fmt.Errorf("of %d bundles %d were delivered", d.Bundles, d.Delivered))
	}
	load := func(d day) float64 { return d.CPU / d.Simulated * 100 }
	// The hourly sweep is a part of each minute.
	ops := func(d day) float64 { return d.Ops + d.SweepOps/60 }
	days := ledger.DefaultKeepHistory.Hours() / 24
	kept := d // of a site that removes no rows in that time
	if fresh != nil {
		kept = *fresh
	}
	figures := []figure{
		{name: "core/day_cpu", value: load(d), unit: "%", bar: 5},
		{name: "core/day_memory", value: d.Memory, unit: "MB", bar: 200},
		{name: "core/day_ledger", value: daily * (kept.Row + days*kept.History) / 1e6, unit: "MB", bar: 1000},
		{name: "core/day_speed", value: d.Simulated / d.Took, unit: "x"},
	}
	if fresh != nil {
		figures[0].against, figures[0].base = "fresh", load(*fresh)
		if d.Ops > 0 {
			const most = 1.1
			base := ops(*fresh)
			figures = append(figures, figure{
				name: "core/day_shared_ops", value: ops(d), unit: "/min", against: "fresh", base: base,
				bar: most * base, barText: fmt.Sprintf("%gx=%.3g", most, most*base),
			})
		}
	}
	for _, f := range figures {
		f.name += suffix
		f.print()
	}
}

// simulateDay simulates a part of a day in a process of its own.
func simulateDay(ctx context.Context, dir, images, image string, ended, lived int) day {
	check(os.Mkdir(dir, 0o700))
	cmd := exec.CommandContext(ctx, must(os.Executable()), "core-day", dir, images, image, strconv.Itoa(ended), strconv.Itoa(lived))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	check(err)
	var d day
	check(json.NewDecoder(bytes.NewReader(out)).Decode(&d)) // a test's words follow
	_ = os.RemoveAll(dir)                                   // the rest goes with the benchmark
	return d
}

// runCoreDay is the part core-day. A bubble belongs to a test, so the part makes itself one.
func runCoreDay(dir, images, image string, ended, lived int) {
	os.Args = os.Args[:1] // of a test's flags there are none
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "day", F: func(t *testing.T) {
		t.Helper()
		synctest.Test(t, func(*testing.T) {
			d := newCoreDay(dir, images, image, ended)
			check(json.NewEncoder(os.Stdout).Encode(d.simulate(lived)))
		})
	}}}, nil, nil)
}

// coreDay is a site in a bubble.
type coreDay struct {
	dir    string
	wire   *pipenet.Listener
	server *coreServer
	http   *http.Client
	bridge *coreBridge
	slurm  *coreSlurm
	user   coreUser

	stop func()
	all  sync.WaitGroup
}

// newCoreDay starts a site at which some bundles have ended since yesterday.
func newCoreDay(dir, images, image string, ended int) *coreDay {
	const address = "http://bench.invalid"
	ctx, stop := context.WithCancel(context.Background())
	d := &coreDay{dir: dir, wire: pipenet.Listen(), server: openServer(ctx, filepath.Join(dir, "server"), 0), stop: stop}
	d.http = &http.Client{Transport: &http.Transport{DialContext: d.wire.Dial, MaxIdleConnsPerHost: 32, IdleConnTimeout: 1500 * time.Millisecond}}
	site := &http.Server{Handler: d.server.handler, ReadHeaderTimeout: time.Minute}
	d.all.Go(func() { _ = d.server.service.Run(ctx) }) // it ends with ctx
	d.all.Go(func() { _ = site.Serve(d.wire) })        // and with the wire
	context.AfterFunc(ctx, func() { _ = site.Close() })
	d.user = newCoreUser(ctx, ann(address, d.http), image)
	d.slurm = newCoreSlurm(ctx, sbatch.JobID(ended+1), runsFor)
	d.bridge = openCore(ctx, dir, images, address, d.http, d.slurm)
	endedSinceYesterday(ctx, d.bridge, image, ended)
	d.all.Go(func() { d.bridge.run(ctx) })
	for !d.bridge.bridge.Observed() || len(d.bridge.bridge.Rows()) > 0 { // until they rest
		time.Sleep(time.Minute)
	}
	return d
}

func (d *coreDay) close() {
	d.stop()
	d.slurm.end()
	d.all.Wait()
	d.http.CloseIdleConnections()
	check(d.server.data.Close())
}

// simulate simulates a part of a day, and closes the site.
func (d *coreDay) simulate(bundles int) day {
	ctx := context.Background()
	result := day{Bundles: bundles}
	result.SweepOps = d.countOps(func() { must(d.bridge.sweeps.Sweep(ctx)) })
	const counted = 2 * time.Minute
	result.Ops = d.countOps(func() { d.makeBundles(ctx, int(counted/bundleEvery)) }) / counted.Minutes()
	time.Sleep(2 * runsFor)
	began, used, took, before := time.Now(), usedBytes(d.bridge.config.Ledger), machineClock(), ownCPU()
	made := d.makeBundles(ctx, bundles)
	time.Sleep(2 * runsFor)
	result.Simulated, result.Took, result.CPU = time.Since(began).Seconds(), machineClock()-took, ownCPU()-before
	result.Memory = part{pid: os.Getpid()}.memory()
	for _, uuid := range made {
		if must(d.user.Bundle(ctx, uuid)).State == codalab.StateReady {
			result.Delivered++
		}
	}
	d.close()
	result.Row, result.History = measureLedger(ctx, d.bridge.config.Ledger, used, made)
	return result
}

// countOps counts the operations on the shared disk during a call.
func (d *coreDay) countOps(during func()) float64 {
	return float64(countOps(os.Getpid(), d.dir, during))
}

// makeBundles makes bundles at the rate of a day.
func (d *coreDay) makeBundles(ctx context.Context, n int) (made []string) {
	start := time.Now()
	for i := range n {
		time.Sleep(time.Until(start.Add(time.Duration(i) * bundleEvery)))
		made = append(made, must(d.user.create(ctx, "cpu")))
	}
	time.Sleep(bundleEvery)
	return made
}

// endedSinceYesterday gives a bridge bundles that have ended since this time yesterday, at a steady rate.
// Each has its row, and its leftover files on the shared disk.
func endedSinceYesterday(ctx context.Context, b *coreBridge, image string, n int) {
	const chunk = 500
	now := time.Now().Round(0)
	for first := 0; first < n; first += chunk {
		var rows []plan.Row
		var group errgroup.Group
		for i := first; i < min(first+chunk, n); i++ {
			r := endedRow(b.policy(), now.Add(-24*time.Hour+time.Duration(i)*bundleEvery), i, image)
			rows = append(rows, r)
			group.Go(func() error { return leaveFiles(b.layout(), b.policy(), r) })
		}
		check(group.Wait())
		check(b.book.Save(ctx, rows))
	}
}

// endedRow is the row of a bundle that ended at a time.
func endedRow(p plan.Policy, at time.Time, i int, image string) plan.Row {
	r := benchRow(i, plan.Done)
	r.Staged = &spool.Inputs{SIF: image}
	r.SubmissionName = plan.SubmissionName(fmt.Sprintf("cl-ann-%012x.1-%s", i+1, p.Bridge))
	r.OnDisk = spool.NameAttempt(1, p.Bridge)
	code := 0
	r.Begun = &spool.Started{Token: spool.NewToken(), Node: "n1", Job: r.Job.ID.String(), At: at}
	r.Exit = &spool.Exit{Token: r.Begun.Token, Cause: spool.CauseSucceeded, ExitCode: &code, CommandStarted: at, CommandEnded: at}
	r.Job.State, r.Job.Submitted, r.SubmittedAt, r.PhaseSince = sbatch.StateCompleted, at, at, at
	r.KeepUntil = at.Add(p.KeepAfterAck)
	r.DueAt = r.KeepUntil
	return r
}

// leaveFiles writes a bundle's leftover files to the shared disk, without flushes.
func leaveFiles(l spool.Layout, p plan.Policy, r plan.Row) error {
	attempt, run := l.Attempt(r.Bundle, r.OnDisk), l.RunDir(r.Bundle, r.OnDisk)
	err := errors.Join(os.MkdirAll(attempt.Dir, 0o700), os.MkdirAll(run, 0o700), os.WriteFile(filepath.Join(run, "stdout"), []byte(coreOutput), 0o600))
	spec := p.Spec(r)
	spec.Format, r.Begun.Format, r.Exit.Format = spool.Format, spool.Format, spool.Format
	for path, record := range map[string]any{
		attempt.SpecPath():                      spec,
		filepath.Join(attempt.Dir, "started"):   r.Begun,
		filepath.Join(attempt.Dir, "exit.json"): r.Exit,
	} {
		data, failed := json.Marshal(record)
		err = errors.Join(err, failed, os.WriteFile(path, data, 0o600))
	}
	return err
}

// measureLedger measures the size of a bundle in the ledger, after the bridge has ended. used is the
// number of used bytes before the bundles were made.
func measureLedger(ctx context.Context, where string, used int64, made []string) (row, history float64) {
	l := must(ledger.Open(ctx, where))
	with := usedBytes(where)
	for _, bundle := range made {
		check(l.Delete(ctx, must(l.Row(ctx, bundle))))
	}
	without := usedBytes(where)
	check(l.Close())
	n := float64(len(made))
	return float64(with-used) / n, float64(without-used) / n
}

// usedBytes returns the number of used bytes of an SQLite file.
func usedBytes(where string) int64 {
	db := must(sqlx.Open("sqlite", where))
	var pages, unused, size int64
	check(db.Get(&pages, `PRAGMA page_count`))
	check(db.Get(&unused, `PRAGMA freelist_count`))
	check(db.Get(&size, `PRAGMA page_size`))
	check(db.Close())
	return (pages - unused) * size
}

// machineClock is the machine's clock, in seconds: a bubble's is another one.
func machineClock() float64 {
	var t unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &t))
	return float64(t.Nano()) / 1e9
}

// ownCPU returns this process's processor time in seconds.
func ownCPU() float64 {
	var r unix.Rusage
	check(unix.Getrusage(unix.RUSAGE_SELF, &r))
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}
