package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// benchFast measures how many short runs end in a second: those of one sweep, from cl run to the last one that is ready, and
// a bare array of as many tasks with the same command in the same container. The cluster is otherwise idle.
func benchFast(ctx context.Context) {
	const rounds, runs, sideBySide = 3, 100, 4
	s := startSite(ctx, testsite.Options{Queues: fastQueue("cpu", "") + fastQueue("arrays", "array_tasks = 1000\n") +
		fastQueue("packs", fmt.Sprintf("pack_runs = 1000\npack_side_by_side = %d\npack_time = \"2h\"\n", sideBySide))})
	defer func() { _ = s.Close() }() // the figures are printed before
	var singles, arrays, packs, bare []rate
	for range rounds {
		bare = append(bare, s.measureRate(ctx, runs, s.bareArray))
		singles = append(singles, s.measureRate(ctx, runs, s.sweepIn("cpu")))
		arrays = append(arrays, s.measureRate(ctx, runs, s.sweepIn("arrays")))
		packs = append(packs, s.measureRate(ctx, 3*runs, s.sweepIn("packs")))
	}
	perSecond := func(r rate) float64 { return r.perSecond }
	requests := func(r rate) float64 { return r.requests }
	base := medianOf(bare, perSecond)
	figure{name: "fast/bare_array", value: base, unit: "runs/s"}.print()
	figure{name: "fast/singles", value: medianOf(singles, perSecond), unit: "runs/s", against: "bare_array", base: base}.print()
	figure{
		name: "fast/arrays", value: medianOf(arrays, perSecond), unit: "runs/s", against: "bare_array", base: base,
		bar: 0.85 * base, barText: fmt.Sprintf("0.85*bare=%.3g", 0.85*base), atLeast: true,
	}.print()
	figure{name: "fast/packs", value: medianOf(packs, perSecond), unit: "runs/s", against: "bare_array", base: base, bar: 150, barText: "150", atLeast: true}.print()
	figure{name: "fast/bare_array_requests", value: medianOf(bare, requests), unit: "RPC/1000_runs"}.print()
	figure{name: "fast/singles_requests", value: medianOf(singles, requests), unit: "RPC/1000_runs", against: "bare_array", base: medianOf(bare, requests)}.print()
	figure{name: "fast/arrays_requests", value: medianOf(arrays, requests), unit: "RPC/1000_runs", against: "bare_array", base: medianOf(bare, requests)}.print()
	figure{name: "fast/packs_requests", value: medianOf(packs, requests), unit: "RPC/1000_runs", against: "bare_array", base: medianOf(bare, requests)}.print()
	fmt.Printf("bench: fast: load average of this machine at the end: %s", must(os.ReadFile("/proc/loadavg")))
}

// rate is the number of runs that end in a second, and that of requests to the controller for 1,000 of them.
type rate struct{ perSecond, requests float64 }

// measureRate measures a way to make n runs, which returns when all have ended.
func (s *site) measureRate(ctx context.Context, n int, way func(ctx context.Context, n int)) rate {
	s.waitIdle(ctx)
	cluster := slurmcluster.Chosen()
	before := must(cluster.Requests(ctx))
	took := seconds(func() { way(ctx, n) })
	asked := must(cluster.Requests(ctx)).Since(before).ByUser[testsite.User]
	return rate{float64(n) / took, float64(asked) / float64(n) * 1000}
}

// fastQueue returns the configuration of a queue in the partition of the bare array.
func fastQueue(name, more string) string {
	return fmt.Sprintf("\n[queue.%s]\ndefault = %t\npartition = \"cpu\"\naccount = \"lab\"\ndefault_time = \"1h\"\n%s", name, name == "cpu", more)
}

// sweepIn returns a function that makes the runs in a queue by one request, and waits for them.
func (s *site) sweepIn(queue string) func(ctx context.Context, n int) {
	return func(ctx context.Context, n int) {
		s.runs++
		name := fmt.Sprint("fast-", s.runs)
		s.cl(ctx, "run", "--request-queue", queue, "--sweep", name, "--each", fmt.Sprint("x=1..", n), "true {x}")
		s.cl(ctx, "wait", name)
	}
}

// bareArray submits an array, and waits until each task has made its last file.
func (s *site) bareArray(ctx context.Context, n int) {
	s.runs++
	dir := filepath.Join(s.Dir, "home", "array"+strconv.Itoa(s.runs))
	check(os.Mkdir(dir, 0o755))
	program(ctx, "chown", testsite.User+":", dir)
	script := fmt.Sprintf(bareScript, must(sifconfig.Read(s.sif)).Offset, s.sif, "true", filepath.Join(dir, "$SLURM_ARRAY_TASK_ID"))
	file := dir + ".sh"
	check(os.WriteFile(file, []byte(script), 0o644))
	s.run(ctx, "sbatch", "--parsable", "--export=ALL", "--partition=cpu", "--account=lab", "--mem=200", "--output=/dev/null",
		"--array=0-"+strconv.Itoa(n-1), file)
	waiting, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for len(must(os.ReadDir(dir))) < n {
		check(pause.For(waiting, 5*time.Millisecond))
	}
}
