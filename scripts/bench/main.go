// Command bench measures the programs beside what they stand beside and prints
// one line a figure:
//
//	bench: AREA/NAME VALUE UNIT ratio=R against=WHAT bar=B met|short
//
// A figure is the median of several runs; one that is compared was measured in
// turn with what it is compared to, in the same run of this program. `make
// bench` runs all areas, `make bench ONLY=main` one. The program starts itself
// with an argument for the parts of area images, each of which is measured as a
// process of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// areas are the areas that there are, by name.
func areas() map[string]func(context.Context, io.Writer) error {
	return map[string]func(context.Context, io.Writer) error{
		"disk":   benchSharedDisk,
		"images": benchImages,
		"main":   benchMain,
		"sim":    benchSim,
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if len(os.Args) > 1 {
		err = playPart(ctx, os.Args[1], os.Args[2:], os.Stdout)
	} else {
		err = run(ctx, os.Stdout, os.Getenv("ONLY"))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, only string) error {
	all := areas()
	names := slices.Sorted(maps.Keys(all))
	if only != "" {
		if all[only] == nil {
			return fmt.Errorf("no area %q; there is %s", only, strings.Join(names, ", "))
		}
		names = []string{only}
	}
	var errs []error
	for _, name := range names {
		if err := all[name](ctx, out); err != nil {
			errs = append(errs, fmt.Errorf("area %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// figure is one measured value.
type figure struct {
	name  string
	value float64
	unit  string
	// against names what value was compared to, base is that one's value.
	against string
	base    float64
	// bar is the largest value that is good enough, or the smallest where
	// atLeast is set, as people say it in barText; "-" where there is none.
	bar     float64
	barText string
	atLeast bool
}

func (f figure) print(out io.Writer) error {
	verdict := "met"
	if f.atLeast && f.value < f.bar || !f.atLeast && f.value > f.bar {
		verdict = "short"
	}
	ratio, against := "-", "-"
	if f.against != "" {
		ratio, against = fmt.Sprintf("%.2f", f.value/f.base), f.against
	}
	_, err := fmt.Fprintf(out, "bench: %s %.3g %s ratio=%s against=%s bar=%s %s\n",
		f.name, f.value, f.unit, ratio, against, f.barText, verdict)
	if err != nil {
		return fmt.Errorf("print figure: %w", err)
	}
	return nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted)%2 == 1 {
		return sorted[len(sorted)/2]
	}
	return (sorted[len(sorted)/2-1] + sorted[len(sorted)/2]) / 2
}
