package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// Values of CodaLab's own worker, as texts of bars.
const (
	stockFirst = "stock:1.6-3.2"
	stockReady = "stock:7.7-9.5"
	stockRead  = "stock:0.1-15"
	stockIdle  = "stock:20"
)

// benchWorkerRuns measures a run at an idle worker: from the request that makes the bundle to its first
// instruction, and until the server shows it as ready.
func benchWorkerRuns(ctx context.Context, dir string) {
	const rounds, stockRounds = 20, 4
	l := startLab(ctx, dir, labHost())
	defer l.end()
	w := l.startWorker(ctx)
	defer w.end()
	if len(stockWorker()) > 0 {
		defer endStockWorker(l.startStockWorker(ctx))
	}
	var ours, stock []times
	for round := range rounds {
		ours = append(ours, l.timeRun(ctx, ownTag))
		if len(stockWorker()) > 0 && round < stockRounds {
			stock = append(stock, l.timeRun(ctx, stockTag))
		}
	}
	for _, of := range []struct {
		name  string
		value func(times) float64
		bar   float64
		stock string
	}{
		{"first_instruction", func(t times) float64 { return t.first }, 0.5, stockFirst},
		{"ready", func(t times) float64 { return t.end }, 1.5, stockReady},
	} {
		values, others := valuesOf(ours, of.value), valuesOf(stock, of.value)
		for _, summary := range []struct {
			name string
			of   func([]float64) float64
		}{{"", median}, {"_p95", func(v []float64) float64 { return quantile(v, 0.95) }}} {
			besideStockWorker(figure{
				name: "worker/" + of.name + summary.name, value: summary.of(values), unit: "s", bar: of.bar, barText: fmt.Sprintf("%g(%s)", of.bar, of.stock),
			}, others, summary.of).print()
		}
	}
}

func valuesOf(runs []times, of func(times) float64) (values []float64) {
	for _, r := range runs {
		values = append(values, of(r))
	}
	return values
}

// timeRun measures a run of a command that prints the time, at a random moment of the check-ins.
func (l *workerLab) timeRun(ctx context.Context, tag string) times {
	check(pause.For(ctx, rand.N(2*time.Second)))
	start := time.Now()
	uuid := l.run(ctx, tag, stamp)
	l.awaitEnd(ctx, uuid)
	end := time.Now()
	return times{first: l.stampOf(ctx, uuid).Sub(start).Seconds(), end: end.Sub(start).Seconds()}
}

// stampOf is the time that a run has printed first.
func (l *workerLab) stampOf(ctx context.Context, uuid string) time.Time {
	text, err := l.read(ctx, uuid)
	check(err)
	return parseStamp(text)
}

// parseStamp reads the time in the first line of a text.
func parseStamp(text string) time.Time {
	line, _, _ := strings.Cut(text, "\n")
	return must(time.Parse("2006-01-02 15:04:05.999999999Z07:00", line))
}

// read returns a run's output so far.
func (l *workerLab) read(ctx context.Context, uuid string) (string, error) {
	c, err := l.user.OpenContents(ctx, codalab.Target{BundleUUID: uuid, Subpath: "stdout"}, nil)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(c)
	return string(text), errors.Join(err, c.Close())
}

// awaitOutput waits until a run prints, and returns its output.
func (l *workerLab) awaitOutput(ctx context.Context, uuid string) string {
	l.await(ctx, uuid, codalab.StateRunning)
	for began := time.Now(); ; check(pause.For(ctx, 20*time.Millisecond)) {
		text, err := l.read(ctx, uuid)
		if err == nil && text != "" {
			return text
		}
		if time.Since(began) > runWithin {
			check(fmt.Errorf("the running bundle %s shows nothing: %w", uuid, err))
		}
	}
}

// benchWorkerWrites measures runs that end when a user writes a file into them: from the end of the command
// until the server shows the run as ready, the slowest of them. The message with the file ends a held
// check-in, so the run ends while the next one may have reported it.
func benchWorkerWrites(ctx context.Context, dir string) {
	const runs = 11
	l := startLab(ctx, dir, labHost())
	defer l.end()
	w := l.startWorker(ctx)
	defer w.end()
	var late []float64
	for i := range runs {
		uuid := l.run(ctx, ownTag, "while ! [ -e go ]; do sleep 0.02; done; "+stamp)
		l.await(ctx, uuid, codalab.StateRunning)
		check(pause.For(ctx, time.Duration(i)*450*time.Millisecond)) // at all moments of a held check-in
		check(l.user.WriteToBundle(ctx, codalab.Target{BundleUUID: uuid, Subpath: "go"}, "x"))
		l.awaitEnd(ctx, uuid)
		late = append(late, time.Since(l.stampOf(ctx, uuid)).Seconds())
	}
	figure{name: "worker/ready_after_write_worst", value: slices.Max(late), unit: "s", bar: 1.5}.print()
}

// benchWorkerReads measures reads of a file of a running bundle, which the worker answers: of one that does
// not change, and of one that grows.
func benchWorkerReads(ctx context.Context, dir string) {
	l := startLab(ctx, dir, labHost())
	defer l.end()
	w := l.startWorker(ctx)
	defer w.end()
	if len(stockWorker()) > 0 {
		defer endStockWorker(l.startStockWorker(ctx))
	}
	for _, file := range []struct {
		name, command string
		stock         bool // is it compared with CodaLab's own worker, which takes its time
	}{
		{"read", stamp + "; sleep 300", false},
		{"read_growing", "while :; do " + stamp + "; sleep 0.02; done", true},
	} {
		ours := l.timeReads(ctx, ownTag, file.command)
		var stock []float64
		if file.stock && len(stockWorker()) > 0 {
			stock = l.timeReads(ctx, stockTag, file.command)
		}
		besideStockWorker(figure{name: "worker/" + file.name, value: median(ours), unit: "s"}, stock, median).print()
		p95 := func(v []float64) float64 { return quantile(v, 0.95) }
		besideStockWorker(figure{
			name: "worker/" + file.name + "_p95", value: p95(ours), unit: "s", bar: 0.3, barText: "0.3(" + stockRead + ")",
		}, stock, p95).print()
	}
}

// timeReads runs a command, and measures a hundred reads of its output; fewer at a slow worker.
func (l *workerLab) timeReads(ctx context.Context, tag, command string) (took []float64) {
	const reads, enough = 100, 15 // seconds
	uuid := l.run(ctx, tag, command)
	l.awaitOutput(ctx, uuid)
	for began := time.Now(); len(took) < reads && time.Since(began).Seconds() < enough; {
		took = append(took, seconds(func() {
			if must(l.read(ctx, uuid)) == "" {
				check(errors.New("a file of a running bundle is empty"))
			}
		}))
		check(pause.For(ctx, rand.N(100*time.Millisecond)))
	}
	check(l.user.KillBundles(ctx, uuid))
	l.await(ctx, uuid, codalab.StateKilled)
	return took
}

// benchWorkerRate measures the number of empty runs of one CPU that a worker ends in a second: from the
// first request until all of them are ready. The worker has the CPUs of this host.
func benchWorkerRate(ctx context.Context, dir string) {
	const runs = 100
	l := startLab(ctx, dir, labHost())
	defer l.end()
	w := l.startWorker(ctx)
	defer w.end()
	used := treeCPU(w.pid)
	took := seconds(func() {
		uuids := make([]string, runs)
		var group errgroup.Group
		group.SetLimit(4)
		for i := range uuids {
			group.Go(func() error { return attempt(func() { uuids[i] = l.run(ctx, ownTag, "true") }) })
		}
		check(group.Wait())
		for _, uuid := range uuids {
			l.awaitEnd(ctx, uuid)
		}
	})
	figure{name: fmt.Sprintf("worker/runs_on_%d_cpus", runtime.NumCPU()), value: runs / took, unit: "/s"}.print()
	figure{name: "worker/cpu_of_a_run", value: (treeCPU(w.pid) - used) / runs * 1000, unit: "ms"}.print()
	figure{name: "worker/memory_after_100_runs", value: residentMB(w.pid), unit: "MB"}.print()
}

// benchWorkerIdle measures the host's resources that a worker uses, idle and with running bundles.
func benchWorkerIdle(ctx context.Context, dir string) {
	const lasts, settles = 20 * time.Second, 3 * time.Second
	l := startLab(ctx, dir, labHost())
	defer l.end()
	w := l.startWorker(ctx)
	defer w.end()
	all := []part{w}
	if len(stockWorker()) > 0 {
		stock := l.startStockWorker(ctx)
		defer endStockWorker(stock)
		all = append(all, stock)
	}
	watch := func() []float64 {
		check(pause.For(ctx, settles))
		before := []float64{0, 0}
		for i, p := range all {
			before[i] = treeCPU(p.pid)
		}
		check(pause.For(ctx, lasts))
		var percent []float64
		for i, p := range all {
			percent = append(percent, (treeCPU(p.pid)-before[i])/lasts.Seconds()*100)
		}
		return percent
	}
	percent := watch()
	same := func(v []float64) float64 { return v[0] }
	besideStockWorker(figure{name: "worker/idle_cpu", value: percent[0], unit: "%", bar: 20, barText: "(" + stockIdle + ")"}, percent[1:], same).print()
	var memory []float64
	for _, p := range all {
		memory = append(memory, residentMB(p.pid))
	}
	besideStockWorker(figure{name: "worker/idle_memory", value: memory[0], unit: "MB"}, memory[1:], same).print()
	all = all[:1]
	var uuids []string
	for range runtime.NumCPU() {
		uuids = append(uuids, l.run(ctx, ownTag, "sleep 300"))
	}
	for _, uuid := range uuids {
		l.await(ctx, uuid, codalab.StateRunning)
	}
	percent = watch()
	figure{name: fmt.Sprintf("worker/cpu_%d_sleeps", len(uuids)), value: percent[0], unit: "%"}.print()
	figure{name: fmt.Sprintf("worker/memory_%d_sleeps", len(uuids)), value: residentMB(w.pid), unit: "MB"}.print()
	check(l.user.KillBundles(ctx, uuids...))
	for _, uuid := range uuids {
		l.await(ctx, uuid, codalab.StateKilled)
	}
}
