package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// shared runs four jobs, each as large as a node, on one dependency.
func (d *demo) shared(ctx context.Context) error {
	d.say("\n# Four jobs on four nodes use one dependency. It is fetched once, before any of them is submitted.")
	data := make([]byte, 64<<20)
	for i := range data {
		data[i] = byte(i >> 10 * 7)
	}
	if err := os.WriteFile(filepath.Join(d.site.Dir, "home", "weights"), data, 0o644); err != nil {
		return fmt.Errorf("write dataset: %w", err)
	}
	want := fmt.Sprintf("%x", sha256.Sum256(data))[:16]
	weights, err := d.cl(ctx, "upload", "weights")
	if err != nil {
		return err
	}
	var runs []string
	for i := range 4 {
		run, err := d.cl(ctx, "run", "w:weights", "sha256sum < w | cut -c1-16; sleep 2", "-n", fmt.Sprintf("reader%d", i+1),
			"--request-queue", "short", "--request-cpus", "64")
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	for _, run := range runs {
		if err := steps(
			func() error { return d.does(ctx, "wait", run) },
			func() error { return d.want(ctx, want, "cat", run+"/stdout") },
		); err != nil {
			return err
		}
	}
	return d.fetchedOnce(ctx, weights, runs)
}

// fetchedOnce compares what the cache tells of a dependency with when and where
// the jobs on it began.
func (d *demo) fetchedOnce(ctx context.Context, dependency string, runs []string) error {
	text, err := d.site.Run(ctx, filepath.Join(testsite.Base, "bin", "cl-bridge"), "cache", "ls", "--json", "--config", d.site.BridgeConfig())
	if err != nil {
		return err
	}
	var all, entries []cache.Entry
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return fmt.Errorf("read the cache's entries: %w", err)
	}
	for _, e := range all {
		if strings.Contains(e.ID, dependency) {
			entries = append(entries, e)
		}
	}
	if len(entries) != 1 {
		return fmt.Errorf("the cache has %d entries of bundle %s, want 1", len(entries), dependency)
	}
	there := entries[0].Made.Add(time.Duration(entries[0].Took * float64(time.Second)))
	d.say("cl-bridge cache ls: one entry of it, %d bytes, there since %s", entries[0].Size, there.Local().Format("15:04:05.000"))
	jobs, err := d.site.Run(ctx, "env", "SLURM_TIME_FORMAT=%s", "squeue", "--me", "--states=all", "--noheader", "--format=%N %S %A %k")
	if err != nil {
		return err
	}
	nodes := map[string]bool{}
	for line := range strings.Lines(jobs) {
		for _, run := range runs {
			if !strings.Contains(line, "bundle="+run) {
				continue
			}
			var node, job string
			var began int64
			if _, err := fmt.Sscan(line, &node, &began, &job); err != nil {
				return fmt.Errorf("read squeue's line %q: %w", line, err)
			}
			at := time.Unix(began, 0)
			d.say("squeue: job %s began on %s at %s", job, node, at.Local().Format(time.TimeOnly))
			nodes[node] = true
			if at.Before(there.Truncate(time.Second)) {
				return fmt.Errorf("job %s began before its dependency was there", job)
			}
		}
	}
	if len(nodes) != len(runs) {
		return fmt.Errorf("the jobs ran on %d nodes, want %d", len(nodes), len(runs))
	}
	return nil
}
