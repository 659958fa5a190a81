// Command sim runs seeds of the simulation of package bridge/sim, and prints the seeds that
// break a promise, each with the command that repeats it.
//
//	sim -seeds 1000000           a million seeds from 1 on
//	sim -first 5000 -seeds 100   a hundred from 5000 on
//	sim -arrays -seeds 5000      five thousand seeds in which bundles go to Slurm as arrays
//	sim -packs -seeds 5000       five thousand seeds in which bundles go to Slurm in packs
//	sim -seed 17 -v              one seed, step by step
//	sim -seed 17 -large          one large world: 2,000 bundles, 200 nodes, five owners
//	sim -seed 17 -only crash.3   the same with only one of its faults
//
// It ends with one line of counts, and with status 1 if a promise was broken.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/sim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

var errBroken = errors.New("a promise was broken")

func run(ctx context.Context, out io.Writer, args []string) error {
	c := campaign{out: out}
	flags := flag.NewFlagSet("sim", flag.ContinueOnError)
	flags.Uint64Var(&c.seeds, "seeds", 10_000, "the number of `seeds` to run")
	flags.Uint64Var(&c.first, "first", 1, "the first `seed`")
	flags.BoolVar(&c.arrays, "arrays", false, "run only seeds in which bundles go to Slurm as arrays")
	flags.BoolVar(&c.packs, "packs", false, "run only seeds in which bundles go to Slurm in packs")
	one := flags.Uint64("seed", 0, "run only this `seed`")
	only := flags.String("only", "", "leave out all `faults` but these, such as crash.3,submit-lost.0 (with -seed)")
	large := flags.Bool("large", false, "make the world large (with -seed)")
	verbose := flags.Bool("v", false, "print each step (with -seed)")
	if err := flags.Parse(args); err != nil {
		return err //nolint:wrapcheck // it names the flag
	}
	if *one != 0 {
		return runOne(ctx, out, *one, *only, sim.Options{Large: *large, Leases: quickDisk()}, *verbose)
	}
	debug.SetGCPercent(3200) // a seed leaves a few hundred kilobytes behind, and little lives
	return c.run(ctx)
}

// runOne runs one seed.
func runOne(ctx context.Context, out io.Writer, seed uint64, only string, o sim.Options, verbose bool) error {
	if only != "" {
		faults, err := sim.ParseFaults(only)
		if err != nil {
			return err
		}
		o.Only = faults
	}
	if verbose {
		o.Log = out
	}
	r := sim.Run(ctx, seed, o)
	for _, v := range r.Violations {
		say(out, "broken: %s at %s: %s\n", v.Broken, v.At, v.Words)
	}
	say(out, "sim: seed=%d bundles=%d attempts=%d tasks=%d packed=%d joined=%d steps=%d simulated=%s faults=%s\n",
		seed, r.Bundles, r.Attempts, r.Tasks, r.Packed, r.Joined, r.Steps, r.Simulated.Round(time.Second), sim.FormatFaults(r.Faults))
	if len(r.Violations) > 0 {
		return errBroken
	}
	return nil
}

// quickDisk returns a directory in memory, or an empty text if the machine has none.
func quickDisk() string {
	const dir = "/dev/shm"
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// say prints a line. It ignores the error of a closed output.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }
