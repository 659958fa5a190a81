package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// Disk is the shared disk as a bridge uses it. Its methods are safe for
// concurrent use, and wait for as long as the disk does.
//
// A disk that is not mounted leaves an empty directory behind. What is missing
// there is no evidence, and what is written there no worker sees: the methods
// fail where <shared>/spool is missing, and never make it.
type Disk struct {
	// Layout is the shared directory. All of Layout.Directories exist.
	Layout Layout
}

// Records are an attempt's records as one reading found them. What was not
// there, or could not be read, is nil.
type Records struct {
	Started *Started
	Status  *Status
	Exit    *Exit
	// Output is the end of what the batch script printed.
	Output string
}

// Prepare writes what a job will read: the specification of an attempt and
// the members of its submission. Preparing the same again is harmless.
func (d Disk) Prepare(s Spec) error {
	if err := d.Layout.Attempt(s.Bundle, s.Attempt).WriteSpec(s); err != nil {
		return err
	}
	return d.Layout.WriteMembers(s.SubmissionName, []Member{{Bundle: s.Bundle, Attempt: s.Attempt}})
}

// Look reads the records of an attempt. With an error not all of them could
// be read: what is nil may be there, and what is not nil is. Without one, what
// is nil was not there when it was looked for, as far as this host's view of
// the disk is fresh, or is no record of this Format.
func (d Disk) Look(bundle string, attempt int) (Records, error) {
	rec, err := d.look(filepath.Join(bundle, strconv.Itoa(attempt)))
	if err != nil {
		return rec, fmt.Errorf("look at attempt %d of %s: %w", attempt, bundle, err)
	}
	return rec, nil
}

// look holds the directories open while it reads, so that all it finds, and
// does not find, is on one disk.
func (d Disk) look(attempt string) (Records, error) {
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
	started, startedErr := find[Started](dir, startedName)
	status, statusErr := find[Status](dir, statusName)
	exit, exitErr := find[Exit](dir, exitName)
	rec := Records{Started: started, Status: status, Exit: exit, Output: tail(dir, outputName)}
	return rec, errors.Join(startedErr, statusErr, exitErr)
}

// find reads a record. Its error is that of a disk which does not say whether
// there is one.
func find[T record](dir *os.Root, name string) (*T, error) {
	data, err := dir.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // none, and sure of it
	}
	if err != nil {
		return nil, err
	}
	rec, err := decode[T](data)
	if err != nil { // what is not to be understood is as good as none
		return nil, nil //nolint:nilerr // as it says
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

// Fence takes an attempt as Attempt.Fence does, and returns the record that
// stands: no worker can begin the attempt any more, or the record is that of
// the one that did (Started.Closed is false).
func (d Disk) Fence(ctx context.Context, bundle string, attempt int, at time.Time) (Started, error) {
	standing, _, err := d.Layout.Attempt(bundle, attempt).Fence(ctx, at)
	return standing, err
}

// Rang returns the attempts whose workers rang since the last call, also with
// an error. See Bell.Answer.
func (d Disk) Rang() ([]Member, error) { return d.Layout.Bell().Answer() }

// Release removes all that the disk holds of a bundle and of its submissions,
// but not what the cache holds of its inputs, nor results that are kept.
// Releasing again is harmless.
func (d Disk) Release(bundle string, marks []string) error {
	if _, err := os.Stat(d.Layout.spool()); err != nil {
		return fmt.Errorf("find the shared disk: %w", err)
	}
	errs := []error{filetree.Remove(d.Layout.RunsDir(bundle)), filetree.Remove(d.Layout.BundleDir(bundle))}
	for _, mark := range marks {
		if err := os.Remove(d.Layout.Members(mark)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove files of bundle %s: %w", bundle, err)
	}
	return nil
}
