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

// Disk is the shared disk as a bridge uses it. Its methods are safe for concurrent
// use, and wait as long as the disk does.
//
// Where a disk is not mounted there is an empty directory. Files missing there prove
// nothing, and no worker sees what is written there. So the methods fail if
// <shared>/spool is missing, and never make it.
type Disk struct {
	// Layout is the shared directory. All of Layout.Directories exist.
	Layout Layout
	// Bridge is the bridge's own id, by which its attempts are named (NameAttempt).
	Bridge string
}

// Records are an attempt's records as one reading found them. Missing and unreadable
// ones are nil.
type Records struct {
	Started *Started
	Status  *Status
	Exit    *Exit
	// Output is the end of the batch script's output.
	Output string
}

// Prepare writes the specification of an attempt. Preparing the same again is harmless.
func (d Disk) Prepare(name AttemptName, s Spec) error {
	return d.Layout.Attempt(s.Bundle, name).WriteSpec(s)
}

// ReadRecords reads the records of an attempt. Without an error, a nil record was not there,
// as far as this host's view of the disk is fresh, or has another Format. With an
// error, not all could be read: a nil record may be there.
func (d Disk) ReadRecords(bundle string, name AttemptName) (Records, error) {
	rec, err := d.readRecords(filepath.Join(bundle, string(name)))
	if err != nil {
		return rec, fmt.Errorf("read records of attempt %s of %s: %w", name, bundle, err)
	}
	return rec, nil
}

// readRecords holds the directories open while it reads, so that one disk answers for
// all records.
func (d Disk) readRecords(attempt string) (Records, error) {
	spool, err := os.OpenRoot(d.Layout.spool())
	if err != nil {
		return Records{}, fmt.Errorf("find the shared disk: %w", err)
	}
	defer spool.Close() //nolint:errcheck // only read
	dir, err := spool.OpenRoot(attempt)
	if errors.Is(err, fs.ErrNotExist) {
		return Records{}, nil
	}
	if err != nil {
		return Records{}, err
	}
	defer dir.Close() //nolint:errcheck // only read
	started, startedErr := readIfThere[Started](dir, startedName)
	status, statusErr := readIfThere[Status](dir, statusName)
	exit, exitErr := readIfThere[Exit](dir, exitName)
	rec := Records{Started: started, Status: status, Exit: exit, Output: tail(dir, outputName)}
	return rec, errors.Join(startedErr, statusErr, exitErr)
}

// readIfThere reads a record, nil if there is none. An error means that the disk does
// not say whether there is one.
func readIfThere[T record](dir *os.Root, name string) (*T, error) {
	data, err := dir.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // certainly none
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
	defer f.Close() //nolint:errcheck // only read
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

// Fence fences an attempt as Attempt.Fence does, and returns the standing record. If
// its Fenced is false, it is that of the worker that began the attempt.
func (d Disk) Fence(ctx context.Context, bundle string, name AttemptName, at time.Time) (Started, error) {
	standing, _, err := d.Layout.Attempt(bundle, name).Fence(ctx, at)
	return standing, err
}

// AnswerDoorbell returns the rings of workers of the bridge's attempts since the last call,
// also with an error. See Bell.Answer.
func (d Disk) AnswerDoorbell() ([]Ring, error) { return d.Layout.Bell().Answer(d.Bridge) }

// Release removes the files of a bundle's attempts, except inputs in the cache and kept
// results. Files of another bridge stay. An attempt of an earlier version is this bridge's if its
// specification has one of submissionNames. Releasing again is harmless.
func (d Disk) Release(bundle string, submissionNames []string) error {
	if _, err := os.Stat(d.Layout.spool()); err != nil {
		return fmt.Errorf("find the shared disk: %w", err)
	}
	// The run directories go first: the specifications of earlier versions say which bridge made them.
	err := errors.Join(d.removeOwn(d.Layout.RunsDir(bundle), bundle, submissionNames), d.removeOwn(d.Layout.BundleDir(bundle), bundle, submissionNames))
	if err != nil {
		return fmt.Errorf("remove files of bundle %s: %w", bundle, err)
	}
	return nil
}

// removeOwn removes a directory of a bundle. If another bridge has files in it, those stay.
func (d Disk) removeOwn(dir, bundle string, submissionNames []string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // another bridge may have files in it
	}
	isForeign := func(e fs.DirEntry) bool {
		attempt, _, _ := strings.Cut(e.Name(), ".") // a file beside a run directory begins with its name
		return d.isForeign(d.Layout.Attempt(bundle, AttemptName(attempt)), submissionNames)
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

// Try tries what the start of an attempt takes of the disk. The error wraps
// linkonce.ErrUnfit if no attempt can be begun there.
func (d Disk) Try() error { return linkonce.Try(d.Layout.spool()) }

// isForeign reports whether an attempt is another bridge's. An old name does not say whose it
// is, and the specification does.
func (d Disk) isForeign(a Attempt, submissionNames []string) bool {
	bridge, ok := a.Name().bridge()
	if !ok || bridge != "" {
		return ok && bridge != d.Bridge
	}
	name := submissionNameOf(a)
	return name != "" && !slices.Contains(submissionNames, name)
}

// Space is the room that a disk has for ordinary users.
type Space = diskspace.Space

// Space measures the shared disk.
func (d Disk) Space() (Space, error) {
	s, err := diskspace.Of(d.Layout.spool())
	if err != nil {
		return Space{}, fmt.Errorf("measure the shared disk: %w", err)
	}
	return s, nil
}
