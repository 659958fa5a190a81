package results

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/spool"
)

// HeldError means that the results are larger than what is left of their owner's disk quota. They stay in their
// directory, and Collect may be called again once there is room.
type HeldError struct {
	Held spool.HeldResults
	// Err is the server's refusal.
	Err error
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("results (%s): the disk quota of their owner has no room for them: %v", e.Held.Size, e.Err)
}

// Unwrap returns the server's refusal.
func (e *HeldError) Unwrap() error { return e.Err }

// HeldResults returns the results that stay.
func (e *HeldError) HeldResults() spool.HeldResults { return e.Held }

// overQuota reports whether a server has refused results because of their owner's disk quota.
func overQuota(err error) (*codalab.Error, bool) {
	refusal, ok := errors.AsType[*codalab.Error](err)
	return refusal, ok && refusal.OverDiskQuota()
}

// hold sends the end of the command's output in the place of results that the server has no room for, and returns a
// HeldError. The output is small, and takes the place of what the worker has reported of its directory, so it fits
// unless the quota is exceeded already.
//
// It replaces no whole results, though the answer to an earlier upload may be lost, or the results may be collected for the second
// time: our server does not refuse results that it has (server/plan: Upload.Most), and CodaLab's own removes what it has before it
// looks at the quota, and what it refuses (codalab/rest/bundles.py: _update_bundle_contents_blob). So the output is better
// than nothing there, also after the verdict was reported.
func (c *Collector) hold(ctx context.Context, run codalab.RunBundle, runDir string, err error) error {
	refusal, _ := overQuota(err)
	held := spool.HeldResults{Left: refusal.DiskQuotaLeft(), Dir: runDir}
	root, failure := openClosed(runDir)
	if errors.Is(failure, fs.ErrNotExist) { // the queue keeps results, and even their listing was refused
		held.Dir = c.Layout.KeptDir(keptName(run.Identity()))
		root, failure = openClosed(held.Dir)
	}
	if failure != nil {
		return failed(failure, true)
	}
	defer func() { _ = root.Close() }() // only read
	if failure = c.outputInstead(ctx, run, root, &held); failure != nil {
		return failure
	}
	return &HeldError{held, cmp.Or[error](refusal, err)}
}

// GiveUp sends the end of the command's output in the place of results whose upload their user has given up, and
// returns the results, which stay. It returns nil if Collect uploads none: then Collect takes as long as their listing.
func (c *Collector) GiveUp(ctx context.Context, run codalab.RunBundle, runDir string, mode spool.ResultsMode) (*spool.HeldResults, error) {
	if c.Store != nil && run.Location != nil || mode == spool.ResultsKeep {
		return nil, nil
	}
	root, err := openClosed(runDir)
	if errors.Is(err, fs.ErrNotExist) { // the queue may have kept them
		return nil, nil
	}
	if err != nil {
		return nil, failed(err, true)
	}
	defer func() { _ = root.Close() }() // only read
	held := spool.HeldResults{Dir: runDir}
	if err := c.outputInstead(ctx, run, root, &held); err != nil {
		return nil, err
	}
	return &held, nil
}

// outputInstead counts results that stay, and sends the end of the command's output in their place. A quota that is used
// up has no room for it either; for another failure a later try sends it.
func (c *Collector) outputInstead(ctx context.Context, run codalab.RunBundle, root *os.Root, held *spool.HeldResults) (err error) {
	if held.Size, err = c.count(ctx, run, root); err != nil {
		return failed(fmt.Errorf("count results: %w", err), true)
	}
	_, err = openUpAndRetry(root, func() (string, error) { return "", c.sendOutput(ctx, run, root) })
	held.Output = err == nil
	if _, over := overQuota(err); over {
		return nil
	}
	return err
}

// count returns the amount of the results in words.
func (c *Collector) count(ctx context.Context, run codalab.RunBundle, root *os.Root) (string, error) {
	var total tally
	err := walker{skip: exclusionOf(run).excludes, visit: func(_ place, info fs.FileInfo) error {
		total.add(info)
		return nil
	}}.walk(ctx, root)
	return total.String(), err
}

// sendOutput sends the end of stdout and stderr. It writes them next to the bundle's records, and a sweep removes them
// if this process is killed.
func (c *Collector) sendOutput(ctx context.Context, run codalab.RunBundle, root *os.Root) error {
	records := c.Layout.BundleDir(run.UUID)
	if err := os.Mkdir(records, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return failed(fmt.Errorf("write output: %w", err), true)
	}
	dir, err := os.MkdirTemp(records, "output-")
	if err != nil {
		return failed(fmt.Errorf("write output: %w", err), true)
	}
	defer func() { _ = filetree.Remove(dir) }() // a sweep removes it otherwise
	for _, name := range []string{"stdout", "stderr"} {
		if _, _, err := copyEnd(root, name, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
	}
	output, err := os.OpenRoot(dir)
	if err != nil {
		return failed(fmt.Errorf("read output: %w", err), true)
	}
	defer func() { _ = output.Close() }() // only read
	return c.send(ctx, run.UUID, output, &upload{}, func(string, fs.DirEntry) bool { return false })
}
