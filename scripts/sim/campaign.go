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

// campaign runs many seeds.
type campaign struct {
	seeds  uint64
	first  uint64 // and then the next one
	arrays bool   // only seeds with arrays
	packs  bool   // only seeds with packs
	out    io.Writer
	start  time.Time

	mu     sync.Mutex
	told   time.Time // when the progress was printed last
	begun  uint64
	done   uint64
	failed int
	totals struct {
		bundles, attempts, tasks, packed, joined, stops, steps, faults int
		simulated                                                      time.Duration
		broken                                                         map[sim.Broken]int
	}
}

func (c *campaign) run(ctx context.Context) error {
	c.totals.broken = map[sim.Broken]int{}
	c.start = time.Now()
	c.told = c.start
	g, ctx := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for seed, more := c.next(); more; seed, more = c.next() {
				r := sim.Run(ctx, seed, sim.Options{Leases: quickDisk()})
				if ctx.Err() != nil {
					return ctx.Err() // a seed that was broken off breaks promises
				}
				c.count(ctx, r)
			}
			return nil
		})
	}
	err := g.Wait()
	c.summary()
	if err == nil && c.failed > 0 {
		err = errBroken
	}
	return err
}

// next returns the next seed; more is false if there is none.
func (c *campaign) next() (seed uint64, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun++
	for c.arrays && !sim.HasArrays(c.first) || c.packs && !sim.HasPacks(c.first) {
		c.first++
	}
	seed = c.first
	c.first++
	return seed, c.begun <= c.seeds
}

// count counts a seed. It prints the progress every 30 seconds, and the first seeds that
// failed.
func (c *campaign) count(ctx context.Context, r sim.Result) {
	const tellEvery, show = 30 * time.Second, 5
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	t := &c.totals
	t.bundles += r.Bundles
	t.attempts += r.Attempts
	t.tasks += r.Tasks
	t.packed += r.Packed
	t.joined += r.Joined
	t.stops += r.Stops
	t.steps += r.Steps
	t.faults += len(r.Faults)
	t.simulated += r.Simulated
	for _, v := range r.Violations {
		t.broken[v.Broken]++
	}
	if len(r.Violations) > 0 {
		if c.failed++; c.failed <= show {
			least := sim.Shrink(ctx, r, sim.Options{Leases: quickDisk()})
			v := least.Violations[0]
			say(c.out, "broken: %s at %s: %s\nrepeat: make sim SEED=%d ONLY=%s\n",
				v.Broken, v.At.Round(time.Millisecond), v.Words, r.Seed, sim.FormatFaults(least.Faults))
		}
	}
	if time.Since(c.told) > tellEvery {
		c.told = time.Now()
		say(c.out, "%d of %d seeds, %d failed, %.0f a second\n", c.done, c.seeds, c.failed, c.rate())
	}
}

func (c *campaign) rate() float64 { return float64(c.done) / time.Since(c.start).Seconds() }

func (c *campaign) summary() {
	var line strings.Builder
	fmt.Fprintf(&line, "sim: seeds=%d", c.done)
	for _, b := range sim.AllBroken() {
		fmt.Fprintf(&line, " %s=%d", b, c.totals.broken[b])
	}
	t := c.totals
	fmt.Fprintf(&line, " bundles=%d attempts=%d tasks=%d packed=%d joined=%d stops=%d steps=%d faults=%d simulated=%.0fd took=%s seeds_per_s=%.0f",
		t.bundles, t.attempts, t.tasks, t.packed, t.joined, t.stops, t.steps, t.faults, t.simulated.Hours()/24, time.Since(c.start).Round(100*time.Millisecond), c.rate())
	say(c.out, "%s\n", line.String())
}
