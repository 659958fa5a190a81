// Command bench compares the project's programs with others that do the same, and prints
// one line for each figure:
//
//	bench: AREA/NAME VALUE UNIT ratio=R against=WHAT bar=B met|short
//
// A figure is the median of several runs. Runs of the two compared sides alternate. `make
// bench` measures all areas, `make bench ONLY=main` one. The program starts itself with
// arguments for parts that are measured as processes of their own.
package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed := false
	measure := func(name string, area func()) {
		if err := attempt(area); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", name, err)
			failed = true
		}
	}
	areas := map[string]func(context.Context){"cl": benchCl, "core": benchCore, "disk": benchDisk, "fast": benchFast, "images": benchImages, "kills": benchKills, "main": benchMain, "managers": benchManagers, "pages": benchPages, "server": benchServer, "sim": benchSim, "slurm": benchSlurm, "worker": benchWorker}
	names := slices.Sorted(maps.Keys(areas))
	only := os.Getenv("ONLY")
	switch {
	case len(os.Args) > 1:
		measure(os.Args[1], func() { playPart(ctx, os.Args[1], os.Args[2:]) })
		names = nil
	case only != "" && areas[only] == nil:
		measure(only, func() { check(fmt.Errorf("no such area; there are %s", strings.Join(names, ", "))) })
		names = nil
	case only != "":
		names = []string{only}
	}
	for _, name := range names {
		measure("area "+name, func() { areas[name](ctx) })
	}
	stop()
	if failed {
		os.Exit(1)
	}
}

// failure is the panic value of check. An area needs each of its measurements, so an
// error ends the area, as Fatal ends a test; attempt returns it.
type failure struct{ error }

// check ends the area unless err is nil.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns value unless there is an error, which ends the area.
func must[T any](value T, err error) T {
	check(err)
	return value
}

// attempt calls f and returns the error that ended it.
func attempt(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// figure is one measured value.
type figure struct {
	name  string
	value float64
	unit  string
	// against names the other side, base is its value.
	against string
	base    float64
	// bar is the largest good value, or with atLeast the smallest; 0 means no bar.
	// barText replaces the number in the output.
	bar     float64
	barText string
	atLeast bool
}

func (f figure) print() {
	verdict, ratio, bar := "met", "-", "-"
	if f.bar != 0 {
		bar = cmp.Or(f.barText, strconv.FormatFloat(f.bar, 'g', -1, 64))
		if f.atLeast && f.value < f.bar || !f.atLeast && f.value > f.bar {
			verdict = "short"
		}
	}
	if f.against != "" {
		ratio = formatRatio(f.value / f.base)
	}
	fmt.Printf("bench: %s %s %s ratio=%s against=%s bar=%s %s\n",
		f.name, formatValue(f.value), f.unit, ratio, cmp.Or(f.against, "-"), bar, verdict)
}

// formatValue formats a value with three digits, or as a whole number.
func formatValue(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// formatRatio formats a ratio with two significant digits.
func formatRatio(r float64) string {
	if r < 0.1 {
		return fmt.Sprintf("%.2g", r)
	}
	return fmt.Sprintf("%.2f", r)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// medianOf is the median of one value of each run.
func medianOf[T any](runs []T, of func(T) float64) float64 {
	var values []float64
	for _, r := range runs {
		values = append(values, of(r))
	}
	return median(values)
}

// seconds calls f and returns its duration.
func seconds(f func()) float64 {
	start := time.Now()
	f()
	return time.Since(start).Seconds()
}

// program runs a program to its end and returns its output.
func program(ctx context.Context, args ...string) string {
	return output(exec.CommandContext(ctx, args[0], args[1:]...))
}

func output(cmd *exec.Cmd) string {
	out, err := cmd.CombinedOutput()
	if err != nil {
		check(fmt.Errorf("%s: %w: %s", cmd.Args[0], err, out))
	}
	return string(out)
}
