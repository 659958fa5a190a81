// Command sim runs seeds of the simulation of package bridge/sim.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/sim"
)

func main() {
	seeds := flag.Uint64("seeds", 1000, "")
	first := flag.Uint64("first", 1, "")
	only := flag.String("only", "", "")
	verbose := flag.Bool("v", false, "")
	one := flag.Uint64("seed", 0, "")
	flag.Parse()
	ctx := context.Background()
	if *one != 0 {
		o := sim.Options{}
		if *only != "" {
			f, err := sim.ParseFaults(*only)
			if err != nil {
				panic(err)
			}
			o.Only = f
		}
		if *verbose {
			o.Log = os.Stdout
		}
		r, err := sim.Run(ctx, *one, o)
		fmt.Println(r.Violations, sim.FormatFaults(r.Faults), r.Steps, r.Simulated, err)
		return
	}
	start := time.Now()
	var next, steps, bundles, attempts, bad atomic.Uint64
	next.Store(*first)
	var wg sync.WaitGroup
	var mu sync.Mutex
	counts := map[sim.Broken]int{}
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				s := next.Add(1) - 1
				if s >= *first+*seeds {
					return
				}
				r, err := sim.Run(ctx, s, sim.Options{})
				if err != nil {
					panic(err)
				}
				steps.Add(uint64(r.Steps))
				bundles.Add(uint64(r.Bundles))
				attempts.Add(uint64(r.Attempts))
				if len(r.Violations) > 0 {
					mu.Lock()
					for _, v := range r.Violations {
						counts[v.Broken]++
					}
					if bad.Add(1) <= 12 {
						r = sim.Shrink(ctx, r)
						fmt.Println(s, r.Violations[0].Broken, r.Violations[0].Words, sim.FormatFaults(r.Faults))
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	d := time.Since(start)
	fmt.Printf("seeds=%d bad=%d %v bundles=%d attempts=%d steps=%d in %s: %.0f/s\n", *seeds, bad.Load(), counts, bundles.Load(), attempts.Load(), steps.Load(), d, float64(*seeds)/d.Seconds())
}
