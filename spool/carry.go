package spool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// Carry makes the run directory of an attempt: a copy of that of an earlier attempt of the bundle, which this bridge
// made, too. files is called with the number of files that are copied so far. A directory that is there is left alone, so
// a repetition is harmless.
//
// A process of the earlier attempt may still run on a node that Slurm has lost. Therefore the files are copied, and the
// directory is neither moved nor filled with hard links: no process ever sees two attempts in one directory. The copy gets
// its name when it is whole and on the disk. Before that, Carry removes the run directories of the other attempts before
// the new one, which nothing needs any more, so that a bundle has two at most.
//
// If the disk is mounted and has no directory of the earlier attempt, the error is a *CarryError.
func (d Disk) Carry(ctx context.Context, bundle string, from, to AttemptName, files func(copied int)) error {
	if _, err := os.Stat(d.Layout.spool()); err != nil {
		return fmt.Errorf("find the shared disk: %w", err)
	}
	target := d.Layout.RunDir(bundle, to)
	if _, err := os.Lstat(target); err == nil {
		return nil
	}
	source := d.Layout.RunDir(bundle, from)
	_, err := os.Lstat(source)
	if err == nil {
		err = d.carry(ctx, bundle, source, target, files)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && !exists(source) && exists(d.Layout.Runs()):
		return &CarryError{Attempt: from, Err: err}
	case err != nil:
		return fmt.Errorf("copy the files of attempt %s: %w", from, err)
	}
	return nil
}

// CarryError means that the run directory of an earlier attempt is gone from the disk.
type CarryError struct {
	Attempt AttemptName
	Err     error
}

func (e *CarryError) Error() string {
	return fmt.Sprintf("the files of attempt %d are gone from the shared disk", e.Attempt.number())
}

func (e *CarryError) Unwrap() error { return e.Err }

// Transient returns false: no repetition brings the files back.
func (e *CarryError) Transient() bool { return false }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// number returns the number in a name; 0 if n is not a name of an attempt.
func (n AttemptName) number() int {
	digits, _, _ := strings.Cut(string(n), "-")
	number, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return number
}

func (d Disk) carry(ctx context.Context, bundle, source, target string, files func(copied int)) error {
	if err := d.removeOlder(bundle, filepath.Base(source), filepath.Base(target)); err != nil {
		return err
	}
	// Another name for each try: a bridge that hangs must not get the half copy of the next one, nor give its own.
	dir, err := os.MkdirTemp(d.Layout.RunsDir(bundle), filepath.Base(target)+carrying)
	if err != nil {
		return err
	}
	whole := filepath.Join(dir, "files")
	err = filetree.Clone(ctx, source, whole, files)
	if err == nil {
		err = atomicfile.SyncDisk(whole)
	}
	if err == nil {
		err = os.Rename(whole, target)
	}
	if err == nil {
		err = atomicfile.SyncDir(d.Layout.RunsDir(bundle))
	}
	return errors.Join(err, filetree.Remove(dir))
}

// carrying is between the name of an attempt and the random end of the name of a directory for its copy.
const carrying = ".carrying-"

// removeOlder removes this bridge's run directories of the bundle's attempts before target, except source, and the copies
// that were cut short.
func (d Disk) removeOlder(bundle, source, target string) error {
	entries, err := os.ReadDir(d.Layout.RunsDir(bundle))
	if err != nil {
		return err
	}
	for _, e := range entries {
		attempt, _, cut := strings.Cut(e.Name(), carrying)
		name := AttemptName(attempt)
		bridge, ok := name.bridge()
		older := name.number() < AttemptName(target).number() && attempt != source
		if ok && bridge == d.Bridge && (cut || older) {
			// A process on a lost node may go on making files there. Release tries again.
			_ = filetree.Remove(filepath.Join(d.Layout.RunsDir(bundle), e.Name()))
		}
	}
	return nil
}
