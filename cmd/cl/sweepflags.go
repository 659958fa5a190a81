package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/grid"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// sweepFlags are the flags that describe members of a sweep.
type sweepFlags struct {
	flags  *pflag.FlagSet
	each   []string
	lines  string
	zip    bool
	sample int
	seed   uint64
	// name is that of a new sweep.
	name string
	// parallel bounds the runs that are on workers at a time; 0 is no bound.
	parallel int
}

// gridFlags adds the flags for members.
func gridFlags(flags *pflag.FlagSet) *sweepFlags {
	f := &sweepFlags{flags: flags}
	flags.StringArrayVar(&f.each, "each", nil, "one run for each value of a setting, as in lr=0.1,0.01 or seed=1..4; may be repeated (cl help sweep)")
	flags.StringVar(&f.lines, "each-line", "", "one run for each line of a `file`; - is standard input")
	flags.BoolVar(&f.zip, "zip", false, "pair the values of the settings")
	flags.IntVar(&f.sample, "sample", 0, "take `N` members by chance; lr=log:1e-5..1e-1 is a range of numbers")
	flags.Uint64Var(&f.seed, "sample-seed", 0, "draw another sample (default 1)")
	flags.IntVar(&f.parallel, "max-parallel", 0, "start at most `N` runs of the sweep at a time")
	return f
}

// given reports whether the flags describe members.
func (f *sweepFlags) given() bool { return len(f.each) > 0 || f.lines != "" }

// checkAlone refuses flags that mean nothing without members.
func (f *sweepFlags) checkAlone(names ...string) error {
	for _, name := range names {
		if f.flags.Changed(name) {
			return refusef("--%s is for sweeps: it needs --each or --each-line.", name)
		}
	}
	return nil
}

// grid returns the members that the flags describe. nth is the number of the sweep's grids before this one: each draws
// another sample.
func (f *sweepFlags) grid(c *cli, nth int) (grid.Grid, error) {
	g := grid.Grid{Each: f.each, Zip: f.zip, Sample: f.sample}
	switch {
	case f.flags.Changed("sample") && f.sample <= 0:
		return g, refusef("--sample wants a number of runs above 0, and not %d.", f.sample)
	case f.flags.Changed("max-parallel") && f.parallel <= 0:
		return g, refusef("--max-parallel wants a number of runs above 0, and not %d.", f.parallel)
	case f.flags.Changed("sample-seed") && f.sample == 0:
		return g, refusef("--sample-seed needs --sample.")
	case f.sample > 0:
		g.Seed = uint64(nth) + 1 //nolint:gosec // a length
		if f.flags.Changed("sample-seed") {
			g.Seed = f.seed
		}
	}
	if f.lines == "" {
		return g, nil
	}
	t, err := f.readLines(c)
	g.Tables = []grid.Table{t}
	return g, err
}

// readLines reads [NAME,...=]FILE.
func (f *sweepFlags) readLines(c *cli) (grid.Table, error) {
	file, names := f.lines, []string(nil)
	if before, after, ok := strings.Cut(f.lines, "="); ok && areSettings(strings.Split(before, ",")) {
		file, names = after, strings.Split(before, ",")
	}
	from := c.Stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return grid.Table{}, fmt.Errorf("--each-line: %w", err)
		}
		defer func() { _ = opened.Close() }() // it was only read
		from = opened
	}
	format := map[string]grid.Format{
		".csv": grid.CSV, ".tsv": grid.TSV, ".jsonl": grid.JSONL, ".ndjson": grid.JSONL,
	}[strings.ToLower(filepath.Ext(file))]
	t, err := grid.ReadRows(from, format, names)
	if err != nil {
		return t, refusef("--each-line %s: %v.", file, err)
	}
	return t, nil
}

func areSettings(names []string) bool {
	for _, name := range names {
		if codalab.CheckSettingName(name) != nil {
			return false
		}
	}
	return true
}
