package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

func (d *demo) chapters() []func(context.Context) {
	return []func(context.Context){
		d.dataset, d.chain, d.sharedDependency, d.linkedData, d.gpus, d.failure, d.liveOutput, d.kill, d.latency, d.accounting,
	}
}

// home returns the path of a file in the researcher's home.
func (d *demo) home(name string) string { return filepath.Join(d.site.Dir, "home", name) }

func (d *demo) dataset(ctx context.Context) {
	d.say("\n# A dataset, and a run on it.")
	d.check(errors.Join(os.Mkdir(d.home("words"), 0o755), os.WriteFile(d.home("words/fruit.txt"), []byte("pear\nfig\napple\n"), 0o644)))
	d.cl(ctx, "upload", "words")
	d.run(ctx, "sorted", "cpu", "in:words", "sort in/fruit.txt > sorted; wc -l < sorted")
	d.runExpecting(ctx, "3", "cat", "sorted/stdout")
	d.runExpecting(ctx, "apple", "cat", "sorted/sorted")
}

func (d *demo) chain(ctx context.Context) {
	d.say("\n# A chain of two runs: the second waits for the first, and sees one file of it.")
	d.cl(ctx, "run", "in:sorted/sorted", "head -n 1 in > first", "-n", "first", "--request-queue", "cpu")
	d.run(ctx, "loud", "short", "f:first/first", "tr a-z A-Z < f")
	d.runExpecting(ctx, "APPLE", "cat", "loud/stdout")
}

// sharedDependency runs four jobs, each as large as a node, on one dependency.
func (d *demo) sharedDependency(ctx context.Context) {
	d.say("\n# Four jobs on four nodes use one dependency. It is fetched once, before any of them is submitted.")
	data := make([]byte, 64<<20)
	for i := range data {
		data[i] = byte(i >> 10 * 7)
	}
	d.check(os.WriteFile(d.home("weights"), data, 0o644))
	want := fmt.Sprintf("%x", sha256.Sum256(data))[:16]
	weights := d.cl(ctx, "upload", "weights")
	var runs []string
	for i := range 4 {
		runs = append(runs, d.cl(ctx, "run", "w:weights", "sha256sum < w | cut -c1-16; sleep 2", "-n", fmt.Sprintf("reader%d", i+1),
			"--request-queue", "short", "--request-cpus", "64"))
	}
	for _, run := range runs {
		d.cl(ctx, "wait", run)
		d.runExpecting(ctx, want, "cat", run+"/stdout")
	}
	fetched := d.fetchedAt(ctx, weights)
	if d.err == nil {
		d.check(d.startedAfter(ctx, fetched, runs))
	}
}

// fetchedAt returns when the cache had a dependency, of which it has one entry.
func (d *demo) fetchedAt(ctx context.Context, dependency string) time.Time {
	var all, entries []cache.Entry
	if text := d.cacheList(ctx, "--json"); d.err == nil {
		d.check(json.Unmarshal([]byte(text), &all))
	}
	for _, e := range all {
		if strings.Contains(e.ID, dependency) {
			entries = append(entries, e)
		}
	}
	if len(entries) != 1 {
		d.check(fmt.Errorf("the cache has %d entries of bundle %s, want 1", len(entries), dependency))
		return time.Time{}
	}
	e := entries[0]
	at := e.Made.Add(time.Duration(e.Took * float64(time.Second)))
	d.say("cl-bridge cache ls: one entry of it, %d bytes, there since %s", e.Size, at.Local().Format("15:04:05.000"))
	return at
}

// startedAfter checks that the jobs of runs started on different nodes, and none
// before a time.
func (d *demo) startedAfter(ctx context.Context, fetched time.Time, runs []string) error {
	nodes := map[string]bool{}
	for line := range strings.Lines(d.other(ctx, "env", "SLURM_TIME_FORMAT=%s", "squeue", "--me", "--states=all", "--noheader", "--format=%N %S %A %k")) {
		for _, run := range runs {
			if !strings.Contains(line, "bundle="+run) {
				continue
			}
			var node, job string
			var start int64
			if _, err := fmt.Sscan(line, &node, &start, &job); err != nil {
				return fmt.Errorf("read squeue's line %q: %w", line, err)
			}
			at := time.Unix(start, 0)
			d.say("squeue: job %s began on %s at %s", job, node, at.Local().Format(time.TimeOnly))
			nodes[node] = true
			if at.Before(fetched.Truncate(time.Second)) {
				return fmt.Errorf("job %s began before its dependency was there", job)
			}
		}
	}
	if len(nodes) != len(runs) {
		return fmt.Errorf("the jobs ran on %d nodes, want %d (or others use the cluster)", len(nodes), len(runs))
	}
	return nil
}

// makeLake makes a directory with data that lies on the cluster's disk already.
func makeLake() (dir string, err error) {
	dir, err = os.MkdirTemp(testsite.Base, "demo-data-")
	if err != nil {
		return "", err
	}
	data := make([]byte, 256<<20)
	err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "corpus.bin"), data, 0o644))
	return dir, err
}

func (d *demo) linkedData(ctx context.Context) {
	d.say("\n# Data that lies on the cluster's disk is used where it lies, without a byte copied.")
	var file syscall.Stat_t
	d.check(syscall.Stat(filepath.Join(d.lake, "corpus.bin"), &file))
	d.say("%s/corpus.bin: %d bytes, inode %d", d.lake, file.Size, file.Ino)
	d.cl(ctx, "upload", "--link", d.lake, "-n", "lake")
	d.run(ctx, "onlake", "cpu", "in:lake", "wc -c < in/corpus.bin; ls -i in/corpus.bin")
	d.runExpecting(ctx, fmt.Sprintf("%d\n%d in/corpus.bin", file.Size, file.Ino), "cat", "onlake/stdout")
	lake := d.cl(ctx, "info", "-f", "uuid", "lake")
	if list := d.cacheList(ctx); d.err == nil && strings.Contains(list, lake) {
		d.check(fmt.Errorf("the cache has a copy of %s:\n%s", lake, list))
	}
	d.say("cl-bridge cache ls: nothing of %s", lake)
}

func (d *demo) gpus(ctx context.Context) {
	d.say("\n# A run with two GPUs sees those two and no others.")
	d.run(ctx, "twogpus", "gpu", "hostname; ls /dev/nvidia[0-9]*; echo CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES", "--request-gpus", "2")
	if n := strings.Count(d.cl(ctx, "cat", "twogpus/stdout"), "/dev/nvidia"); n != 2 {
		d.check(fmt.Errorf("the run sees %d GPUs, want 2", n))
	}
}

func (d *demo) failure(ctx context.Context) {
	d.say("\n# Runs that fail say why.")
	d.cl(ctx, "run", "cat missing.csv", "-n", "wrong", "--request-queue", "cpu")
	d.fails(ctx, "wait", "wrong")
	d.runExpecting(ctx, "failed", "info", "-f", "state,exitcode,failure_message", "wrong")
	d.runExpecting(ctx, "missing.csv", "cat", "wrong/stderr")
	d.cl(ctx, "run", "sleep 60", "-n", "slow", "--request-queue", "short", "--request-time", "1s")
	d.fails(ctx, "wait", "slow")
	d.runExpecting(ctx, "Time limit", "info", "-f", "state,failure_message", "slow")
}

func (d *demo) liveOutput(ctx context.Context) {
	d.say("\n# Output is seen while it is written: each line with the second in which it was seen.")
	d.cl(ctx, "run", "for i in 1 2 3; do echo line $i; sleep 1; done", "-n", "counter", "--request-queue", "cpu")
	d.say("$ cl wait --tail counter")
	w := &stamped{out: d.out, began: time.Now()}
	d.check(d.site.Stream(ctx, w, filepath.Join(testsite.Base, "bin", "cl"), "wait", "--tail", "counter"))
	if w.lines < 3 {
		d.check(fmt.Errorf("%d lines were seen, want 3", w.lines))
	}
}

func (d *demo) kill(ctx context.Context) {
	d.say("\n# A killed run keeps what it had written.")
	d.cl(ctx, "run", "echo so far > partial; sleep 600", "-n", "endless", "--request-queue", "cpu")
	d.until(ctx, func() bool {
		answer, err := d.site.CL(ctx, "cat", "endless/partial")
		return err == nil && answer == "so far"
	})
	d.cl(ctx, "kill", "endless")
	d.fails(ctx, "wait", "endless")
	d.runExpecting(ctx, "killed", "info", "-f", "state,failure_message", "endless")
	d.runExpecting(ctx, "so far", "cat", "endless/partial")
}

func (d *demo) latency(ctx context.Context) {
	d.say("\n# How long it takes, with the image there and the cluster idle. /proc/uptime is the same clock everywhere here.")
	start := d.uptime()
	d.bundle = d.run(ctx, "quick", "cpu", "cat /proc/uptime")
	end := d.uptime()
	first := d.parseUptime(d.cl(ctx, "cat", "quick/stdout"))
	d.first, d.ready = first-start, end-start
}

func (d *demo) uptime() float64 {
	data, err := os.ReadFile("/proc/uptime")
	d.check(err)
	return d.parseUptime(string(data))
}

func (d *demo) parseUptime(s string) float64 {
	seconds, _, _ := strings.Cut(s, " ")
	f, err := strconv.ParseFloat(seconds, 64)
	d.check(err)
	return f
}

// accounting shows the administrator's view. The accounting database shows a job's
// comment some seconds after its end.
func (d *demo) accounting(ctx context.Context) {
	d.say("\n# What the administrator sees of it all.")
	args := []string{
		"sacct", "--allocations", "--starttime=" + d.began.Format("2006-01-02T15:04:05"),
		"--format=JobID,JobName%50,Partition,Account,State%12,ExitCode,AllocTRES%45,Comment%120",
	}
	d.say("$ %s", quoted(args))
	const jobs = 14
	var table string
	d.until(ctx, func() bool {
		table = d.other(ctx, args...)
		return strings.Count(table, "codalab bundle=") >= jobs
	})
	d.say("%s", table)
	for line := range strings.Lines(table) {
		if strings.Contains(line, "bundle="+d.bundle) {
			d.job = strings.Fields(line)[0]
		}
	}
}
