package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/sim"
)

// campaign is a run of many seeds.
type campaign struct {
	seeds, first uint64
	show         int
	tellEvery    time.Duration
	untilBroken  bool

	mu     sync.Mutex
	out    io.Writer
	next   uint64
	done   uint64
	failed int
	totals totals
}

// totals are the counts of all seeds.
type totals struct {
	bundles, attempts, steps, faults int
	simulated                        time.Duration
	broken                           map[sim.Broken]int
}

func (c *campaign) run(ctx context.Context, out io.Writer) error {
	c.out, c.next, c.totals.broken = out, c.first, map[sim.Broken]int{}
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error { return c.work(ctx) })
	}
	finished := make(chan struct{})
	var teller sync.WaitGroup
	teller.Go(func() { c.report(finished, start) })
	err := g.Wait()
	close(finished)
	teller.Wait()
	c.summary(time.Since(start))
	if err == nil && c.failed > 0 {
		err = errBroken
	}
	return err
}

// work runs seeds until none is left.
func (c *campaign) work(ctx context.Context) error {
	for ctx.Err() == nil {
		c.mu.Lock()
		seed := c.next
		c.next++
		c.mu.Unlock()
		if seed >= c.first+c.seeds || c.ended() {
			return nil
		}
		c.count(ctx, sim.Run(ctx, seed, sim.Options{}))
	}
	return ctx.Err()
}

// ended reports whether a failure has ended the campaign.
func (c *campaign) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.untilBroken && c.failed > 0
}

// count counts a seed, and prints it if it failed.
func (c *campaign) count(ctx context.Context, r sim.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	t := &c.totals
	t.bundles += r.Bundles
	t.attempts += r.Attempts
	t.steps += r.Steps
	t.faults += len(r.Faults)
	t.simulated += r.Simulated
	if len(r.Violations) == 0 {
		return
	}
	c.failed++
	for _, v := range r.Violations {
		t.broken[v.Broken]++
	}
	if c.failed > c.show {
		return
	}
	least := sim.Shrink(ctx, r, sim.Options{})
	v := least.Violations[0]
	say(c.out, "broken: %s at %s: %s\nrepeat: make sim SEED=%d ONLY=%s\n",
		v.Broken, v.At.Round(time.Millisecond), v.Words, r.Seed, sim.FormatFaults(least.Faults))
}

// report prints the progress now and then.
func (c *campaign) report(finished <-chan struct{}, start time.Time) {
	if c.tellEvery <= 0 {
		return
	}
	tick := time.NewTicker(c.tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-finished:
			return
		case <-tick.C:
			c.mu.Lock()
			say(c.out, "%d of %d seeds, %d failed, %.0f a second\n", c.done, c.seeds, c.failed, float64(c.done)/time.Since(start).Seconds())
			c.mu.Unlock()
		}
	}
}

func (c *campaign) summary(took time.Duration) {
	var line strings.Builder
	fmt.Fprintf(&line, "sim: seeds=%d", c.done)
	for _, b := range sim.AllBroken() {
		fmt.Fprintf(&line, " %s=%d", b, c.totals.broken[b])
	}
	t := c.totals
	fmt.Fprintf(&line, " bundles=%d attempts=%d steps=%d faults=%d simulated=%.0fd took=%s seeds_per_s=%.0f",
		t.bundles, t.attempts, t.steps, t.faults, t.simulated.Hours()/24, took.Round(100*time.Millisecond), float64(c.done)/took.Seconds())
	say(c.out, "%s\n", line.String())
}
