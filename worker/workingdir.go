package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Directories in the worker's private directory, next to the containers' own.
const (
	tempName       = "tmp"  // the command's TMPDIR
	workingDirName = "work" // a local working directory
)

// tempDir returns TMPDIR in the container of a bundle, a directory on the node's own disk.
func tempDir(bundle string) string { return "/" + bundle + "_tmp" }

// outputDir returns the directory of the output files in a container with a local working
// directory. The files are on the shared disk from the start, where people can read them, and the
// working directory has links to them.
func outputDir(bundle string) string { return "/" + bundle + "_output" }

func outputs() []string { return []string{"stdout", "stderr"} }

// makeDirs makes the command's directories on the node's own disk, sets r.workingDir and returns the binds
// for them.
func (r *attemptRun) makeDirs() ([]container.Bind, error) {
	temp, err := r.private.makeTemp(r.place != nil)
	if err != nil {
		return nil, err
	}
	binds := []container.Bind{{Source: temp, Target: tempDir(r.spec.Bundle)}}
	r.workingDir = r.spec.RunDir
	if r.spec.WorkingDirDisk == spool.WorkingDirLocal {
		local := filepath.Join(r.private.dir, workingDirName)
		if err := os.Mkdir(local, 0o700); err != nil {
			return nil, fmt.Errorf("make the working directory: %w", err)
		}
		r.workingDir = local
		for _, name := range outputs() {
			target := path.Join(outputDir(r.spec.Bundle), name)
			if err := os.Symlink(target, filepath.Join(local, name)); err != nil {
				return nil, fmt.Errorf("link %s into the working directory: %w", name, err)
			}
			binds = append(binds, container.Bind{Source: filepath.Join(r.spec.RunDir, name), Target: target})
		}
	}
	return append(binds, container.Bind{Source: r.workingDir, Target: "/" + r.spec.Bundle}), nil
}

func (r *attemptRun) makeLinks(links []link) (err error) {
	if len(links) == 0 {
		return nil
	}
	root, err := os.OpenRoot(r.workingDir)
	if err != nil {
		return fmt.Errorf("open the working directory: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return makeLinks(root, links, r.spec.Resumed)
}

// copyGrace limits the copy of a local working directory after TERM. The sum of copyGrace and the
// command's time between TERM and KILL must be shorter than the site's KillWait.
const copyGrace = 10 * time.Second

// copyResults copies a local working directory to the run directory and flushes it there. It tries
// again for as long as recordExit does. After TERM it stops within copyGrace, because Slurm then
// kills the job. The error names the missing part.
func (r *attemptRun) copyResults(ctx context.Context) error {
	if r.workingDir == "" || r.workingDir == r.spec.RunDir {
		return nil
	}
	r.usage.copyingBegan()
	began := time.Now()
	copyCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(copyGrace, func() { cancel(errTerminated) })
		context.AfterFunc(copyCtx, func() { timer.Stop() })
	})()
	c := copier{skip: r.isOutputLink, sync: r.sync, temporary: spool.CopyPrefix(r.usage.snapshot(time.Time{}).Token)}
	err := c.tryFor(copyCtx, r.workingDir, r.spec.RunDir, recordTimeout, func(err error) {
		r.Log.WarnContext(ctx, "cannot copy all results", slog.Any("error", err))
	})
	r.Log.InfoContext(ctx, "copied results", slog.Int64("bytes", c.bytes.Load()),
		slog.Int64("files", c.files.Load()), slog.Duration("took", time.Since(began)))
	if err == nil {
		return nil
	}
	return fmt.Errorf("only %s of the results could be copied from the disk of node %s: %w", codalab.FormatSize(c.bytes.Load()), r.Node, err)
}

// errTerminated is the cause when TERM ended the copy.
var errTerminated = errors.New("the job was terminated")

// isOutputLink reports whether an entry of the local working directory is the link to an output
// file.
func (r *attemptRun) isOutputLink(root *os.Root, name string) bool {
	if !isOutput(name) {
		return false
	}
	target, err := root.Readlink(name)
	return err == nil && target == path.Join(outputDir(r.spec.Bundle), name)
}
