package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/linkonce"
)

// Disk is the bridge's access to the shared disk. Its methods are safe for concurrent use, and block as
// long as the disk does.
//
// If the disk is not mounted, its path is an empty directory. Missing files prove nothing there, and no
// worker sees files that are written there. So the methods fail if <shared>/spool is missing, and never
// make it.
type Disk struct {
	// Layout is the shared directory. All of Layout.Directories exist.
	Layout Layout
	// Bridge is the bridge's id, which is in the names of its attempts (NameAttempt).
	Bridge string
}

// Records are the result of one reading of an attempt's records. Missing and unreadable ones are nil.
type Records struct {
	Started *Started
	Status  *Status
	Exit    *Exit
	// Output is the end of the batch script's output.
	Output string
}

// Prepare writes the specification of an attempt. A repetition is harmless.
func (d Disk) Prepare(name AttemptName, s Spec) error {
	return d.Layout.Attempt(s.Bundle, name).WriteSpec(s)
}

// ReadRecords reads the records of an attempt. If the error is nil, a nil record does not exist as far as
// this host's view of the disk is fresh, or has another Format. After an error some records could not be
// read, and a nil record may exist.
func (d Disk) ReadRecords(bundle string, name AttemptName) (Records, error) {
	rec, err := d.readRecords(filepath.Join(bundle, string(name)))
	if err != nil {
		return rec, fmt.Errorf("read records of attempt %s of %s: %w", name, bundle, err)
	}
	return rec, nil
}

// readRecords holds the directories open while it reads, so that all records come from one disk.
func (d Disk) readRecords(attempt string) (Records, error) {
	spool, err := os.OpenRoot(d.Layout.spool())
	if err != nil {
		return Records{}, fmt.Errorf("find the shared disk: %w", err)
	}
	defer spool.Close()
	dir, err := spool.OpenRoot(attempt)
	if errors.Is(err, fs.ErrNotExist) {
		return Records{}, nil
	}
	if err != nil {
		return Records{}, err
	}
	defer dir.Close()
	started, startedErr := readIfThere[Started](dir, startedName)
	status, statusErr := readIfThere[Status](dir, statusName)
	exit, exitErr := readIfThere[Exit](dir, exitName)
	rec := Records{Started: started, Status: status, Exit: exit, Output: tail(dir, outputName)}
	return rec, errors.Join(startedErr, statusErr, exitErr)
}

// readIfThere reads a record, nil if it does not exist. After an error it may exist.
func readIfThere[T record](dir *os.Root, name string) (*T, error) {
	data, err := dir.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it certainly does not exist
	}
	if err != nil {
		return nil, err
	}
	rec, err := decode[T](data)
	if err != nil {
		return nil, nil //nolint:nilerr // a record of another Format counts as none
	}
	return &rec, nil
}

// tail returns the end of a file, or nothing.
func tail(dir *os.Root, name string) string {
	const kept = 2048
	f, err := dir.Open(name)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	if info, err := f.Stat(); err == nil && info.Size() > kept {
		if _, err := f.Seek(-kept, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, kept))
	if err != nil {
		return ""
	}
	return string(text)
}

// Fence fences an attempt like Attempt.Fence, and returns the standing record. If its Fenced is false, it
// belongs to the worker that began the attempt.
func (d Disk) Fence(ctx context.Context, bundle string, name AttemptName, at time.Time) (Started, error) {
	standing, _, err := d.Layout.Attempt(bundle, name).Fence(ctx, at)
	return standing, err
}

// TakeRings returns the rings of workers of the bridge's attempts since the last call, even together
// with an error. See Bell.TakeRings.
func (d Disk) TakeRings() ([]Ring, error) { return d.Layout.Bell().TakeRings(d.Bridge) }

// Release removes the files of a bundle's attempts, except inputs in the cache and kept results. It leaves
// files whose names begin with an attempt of another bridge. A repetition is harmless.
func (d Disk) Release(bundle string) error {
	if _, err := os.Stat(d.Layout.spool()); err != nil {
		return fmt.Errorf("find the shared disk: %w", err)
	}
	if err := errors.Join(d.removeOwn(d.Layout.RunsDir(bundle)), d.removeOwn(d.Layout.BundleDir(bundle))); err != nil {
		return fmt.Errorf("remove files of bundle %s: %w", bundle, err)
	}
	return nil
}

// removeOwn removes a directory of a bundle. If another bridge has files in it, only those stay; files whose
// names show no bridge go.
func (d Disk) removeOwn(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // another bridge may have files in it
	}
	isForeign := func(e fs.DirEntry) bool {
		attempt, _, _ := strings.Cut(e.Name(), ".") // the name of a file next to a run directory begins with the attempt's
		bridge, ok := AttemptName(attempt).bridge()
		return ok && bridge != d.Bridge
	}
	if !slices.ContainsFunc(entries, isForeign) {
		return filetree.Remove(dir)
	}
	var errs []error
	for _, e := range entries {
		if !isForeign(e) {
			errs = append(errs, filetree.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Try makes the file operations of an attempt's start. The error wraps linkonce.ErrUnfit if no attempt can
// be begun on the disk.
func (d Disk) Try() error { return linkonce.Try(d.Layout.spool()) }

// Space is the free space of a disk for ordinary users.
type Space = diskspace.Space

// Space measures the shared disk.
func (d Disk) Space() (Space, error) {
	s, err := diskspace.Of(d.Layout.spool())
	if err != nil {
		return Space{}, fmt.Errorf("measure the shared disk: %w", err)
	}
	return s, nil
}
