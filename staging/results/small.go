package results

import (
	"context"
	"errors"
	"io/fs"
	"math"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Results within these limits are small, and take seconds to collect.
const (
	smallBytes   = 64 << 20
	smallEntries = 1000
)

// Measure measures the results in a run directory by one listing of at most smallEntries entries, and reads no file. A file
// counts with its whole size, including holes, because an upload reads them. Kept results are small if they are few, because
// only their listing is sent. Results that cannot be measured are not small.
func (c *Collector) Measure(ctx context.Context, run codalab.RunBundle, runDir string, mode spool.ResultsMode) spool.MeasuredResults {
	root, err := openClosed(runDir)
	if errors.Is(err, fs.ErrNotExist) && c.Layout != "" {
		mode = spool.ResultsKeep // as in collect
		root, err = openClosed(c.Layout.KeptDir(keptName(run.Identity())))
	}
	if err != nil {
		return spool.MeasuredResults{Small: errors.Is(err, fs.ErrNotExist)} // Collect reports it immediately
	}
	defer func() { _ = root.Close() }() // only read
	most, left := int64(smallBytes), smallEntries
	if mode == spool.ResultsKeep {
		most = math.MaxInt64
	}
	counted, err := countUpload(ctx, root, exclusionOf(run), most, &left)
	if err != nil {
		return spool.MeasuredResults{}
	}
	m := spool.MeasuredResults{Small: true, Tiny: mode != spool.ResultsKeep && c.isTiny(run, counted.total)}
	if most, err := c.mostBytes(root); err != nil || counted.total.bytes > most {
		m.Tiny = false // Collect refuses them
	}
	if m.Tiny {
		m.Details = counted.details()
	}
	return m
}
