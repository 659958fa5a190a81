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

// The numbers of runs of one round. A way that is slow has fewer.
const (
	fastRounds   = 3
	fastSingles  = 50
	fastArrays   = 200 // and tasks of the bare array
	fastPacks    = 1000
	fastKills    = 20
	fastInArrays = "array_tasks = 1000\n"
	fastInPacks  = "pack_runs = 1000\npack_side_by_side = 8\npack_time = \"2h\"\n"
	// killsInPacks makes more packs than there are kills: runs whose worker was killed repeatedly before they began wait minutes.
	killsInPacks = "pack_runs = 40\npack_side_by_side = 4\npack_time = \"2h\"\n"
)

// benchFast measures how many short runs end in a second: those of one sweep, from cl run to the last one that is ready, and
// a bare array of as many tasks with the same command in the same container. The cluster is otherwise idle.
func benchFast(ctx context.Context) {
	s := startSite(ctx, testsite.Options{Queues: fastQueue("cpu", "") + fastQueue("arrays", fastInArrays) + fastQueue("packs", fastInPacks)})
	defer func() { _ = s.Close() }() // the figures are printed before
	var singles, arrays, packs, bare []rate
	for range fastRounds {
		bare = append(bare, s.measureRate(ctx, fastArrays, s.bareArray))
		singles = append(singles, s.measureRate(ctx, fastSingles, s.sweepIn("cpu")))
		arrays = append(arrays, s.measureRate(ctx, fastArrays, s.sweepIn("arrays")))
		packs = append(packs, s.measureRate(ctx, fastPacks, s.sweepIn("packs")))
	}
	base := medianOf(bare, ofRuns)
	figure{name: "fast/bare_array", value: base, unit: "runs/s"}.print()
	figure{name: "fast/singles", value: medianOf(singles, ofRuns), unit: "runs/s", against: "bare_array", base: base}.print()
	printRates("fast", base, arrays, packs)
	figure{name: "fast/bare_array_requests", value: medianOf(bare, ofRequests), unit: "RPC/1000_runs"}.print()
	for _, way := range []struct {
		name  string
		rates []rate
	}{{"singles", singles}, {"arrays", arrays}, {"packs", packs}} {
		figure{
			name: "fast/" + way.name + "_requests", value: medianOf(way.rates, ofRequests), unit: "RPC/1000_runs",
			against: "bare_array", base: medianOf(bare, ofRequests),
		}.print()
	}
	printLoad("fast")
}

// benchKills measures the sweeps of benchFast while workers are killed, beside the bare array.
func benchKills(ctx context.Context) {
	journals := must(os.MkdirTemp(testsite.Base, "journal-"))
	defer func() { _ = os.RemoveAll(journals) }() // a leftover has no meaning
	check(os.Chmod(journals, 0o755))
	j := must(testsite.NewJournal(journals))
	defer func() { _ = j.Close() }() // only counts
	again := "retry_begun = \"on_platform\"\n" + testsite.JournalBind(journals)
	s := startSite(ctx, testsite.Options{
		Config: "max_attempts = 100\n",
		Queues: fastQueue("cpu", "") + fastQueue("arrays", fastInArrays+again) + fastQueue("packs", killsInPacks+again),
	})
	defer func() { _ = s.Close() }() // the figures are printed before
	bare := s.measureRate(ctx, fastArrays, s.bareArray)
	arrays := s.measureKilled(ctx, "arrays", fastArrays, true, j)
	packs := s.measureKilled(ctx, "packs", fastPacks, false, j)
	figure{name: "kills/bare_array", value: bare.perSecond, unit: "runs/s"}.print()
	printRates("kills", bare.perSecond, []rate{arrays}, []rate{packs})
	printLoad("kills")
}

func printLoad(area string) {
	fmt.Printf("bench: %s: load average of this machine at the end: %s", area, must(os.ReadFile("/proc/loadavg")))
}

func ofRuns(r rate) float64     { return r.perSecond }
func ofRequests(r rate) float64 { return r.requests }

// printRates prints the rates of arrays and packs. base is that of the bare array.
func printRates(area string, base float64, arrays, packs []rate) {
	figure{
		name: area + "/arrays", value: medianOf(arrays, ofRuns), unit: "runs/s", against: "bare_array", base: base,
		bar: 0.85 * base, barText: fmt.Sprintf("0.85*bare=%.3g", 0.85*base), atLeast: true,
	}.print()
	figure{name: area + "/packs", value: medianOf(packs, ofRuns), unit: "runs/s", against: "bare_array", base: base, bar: 150, barText: "150", atLeast: true}.print()
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
	return func(ctx context.Context, n int) { s.cl(ctx, "wait", s.sweep(ctx, queue, n, "true")) }
}

// sweep makes runs by one request, and returns the sweep's name.
func (s *site) sweep(ctx context.Context, queue string, n int, command string) string {
	s.runs++
	name := fmt.Sprint("fast-", s.runs)
	s.cl(ctx, "run", "--request-queue", queue, "--sweep", name, "--each", fmt.Sprint("x=1..", n), command+" {x}")
	return name
}

// measureKilled measures a sweep in a queue whose runs begin again after their worker was killed. It kills workers from the first
// beginning of a command to the last. No attempt may have begun twice, and where each run has a job of its own, Slurm's accounting has to
// have one for each. That of a worker killed after it recorded a run's end has failed, and the run is ready.
func (s *site) measureKilled(ctx context.Context, queue string, n int, ownJobs bool, j *testsite.Journal) rate {
	begun, jobs := j.Count(), must(s.Accounted(ctx))
	r := s.measureRate(ctx, n, func(ctx context.Context, n int) {
		name := s.sweep(ctx, queue, n, testsite.Journals+" # ")
		for killed := 0; killed < fastKills; {
			check(pause.For(ctx, 5*time.Millisecond))
			if j.Count() > begun+killed*n/fastKills && s.KillWorker(ctx) {
				killed++
			}
		}
		s.cl(ctx, "wait", name)
	})
	if twice := j.Twice(); len(twice) > 0 {
		check(fmt.Errorf("began more than once: %s", twice))
	}
	begun = j.Count() - begun
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ended := must(s.Accounted(ctx))
	for ownJobs && ended["COMPLETED"]+ended["FAILED"] < jobs["COMPLETED"]+jobs["FAILED"]+n {
		check(pause.For(waiting, 100*time.Millisecond))
		ended = must(s.Accounted(ctx))
	}
	for state, before := range jobs {
		ended[state] -= before
	}
	fmt.Printf("bench: kills: %s: %d runs ready, %d workers killed, %d commands begun, none of them twice; jobs in sacct: %v\n", queue, n, fastKills, begun, ended)
	return r
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
