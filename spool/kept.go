package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// KeptDir returns the directory of results that stay on the shared disk. Their name is the bundle's UUID and
// a digest of its identity. One rename of a run directory makes it, so it is always whole. Release does not
// touch it.
func (l Layout) KeptDir(name string) string { return filepath.Join(l.KeptDirs(), name) }

// KeptDirs returns the directory with the kept results of all bundles.
func (l Layout) KeptDirs() string { return filepath.Join(string(l), "kept") }

// removingPrefix begins the names of kept results that are being removed.
const removingPrefix = ".removing-"

// KeptRemovingDir returns the directory of kept results during their removal.
func (l Layout) KeptRemovingDir(name string) string { return l.KeptDir(removingPrefix + name) }

// KeptResults is a directory of results that stay on the shared disk.
type KeptResults struct {
	// Name is the directory's, in Layout.KeptDirs.
	Name string
	// Bundle is the UUID of the bundle that made them. Identity adds the digest that distinguishes the
	// bundle from others of its UUID.
	Bundle, Identity string
	// Superseded is set for results of an earlier run of the bundle; those of the last run have the
	// bundle's own name.
	Superseded bool
	// Removing is set for the remains of an interrupted removal.
	Removing bool
}

// keptName matches the names of kept results: removingPrefix during a removal, the bundle's UUID, the digest of
// its identity (none if the server did not tell the bundle's creation time), and a number for the results of an
// earlier run.
var keptName = lazyregexp.New(`^(` + regexp.QuoteMeta(removingPrefix) + `)?((0x[0-9a-f]{32})(?:-[0-9a-f]{16})?)(\.[1-9][0-9]*)?$`)

// ListKeptResults lists the kept results in the order of their names. It omits other names, which are not the
// bridge's.
func (d Disk) ListKeptResults() ([]KeptResults, error) {
	entries, err := os.ReadDir(d.Layout.KeptDirs())
	if err != nil {
		return nil, fmt.Errorf("list kept results: %w", err)
	}
	kept := make([]KeptResults, 0, len(entries))
	for _, e := range entries {
		parts := keptName().FindStringSubmatch(e.Name())
		if parts == nil || !e.IsDir() {
			continue
		}
		kept = append(kept, KeptResults{Name: e.Name(), Bundle: parts[3], Identity: parts[2], Superseded: parts[4] != "", Removing: parts[1] != ""})
	}
	return kept, nil
}

// MeasureKeptResults returns the sum of the sizes of kept results.
func (d Disk) MeasureKeptResults(ctx context.Context, k KeptResults) (bytes, entries int64, err error) {
	entries = -1 // without the directory itself
	err = filetree.Each(ctx, d.Layout.KeptDir(k.Name), func(st *unix.Stat_t) error {
		entries++
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			bytes += st.Size
		}
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("look through kept results %s: %w", k.Name, err)
	}
	return bytes, max(entries, 0), nil
}

// RemoveKeptResults removes kept results unless they are in use, and reports whether it did. It renames them
// first, so that no new use begins, and then calls inUse. If that returns true or fails, RemoveKeptResults
// gives them their name again.
func (d Disk) RemoveKeptResults(k KeptResults, inUse func() (bool, error)) (bool, error) {
	at := d.Layout.KeptDir(strings.TrimPrefix(k.Name, removingPrefix))
	removing := d.Layout.KeptDir(removingPrefix + filepath.Base(at))
	failed := func(err error) (bool, error) {
		return false, fmt.Errorf("remove kept results %s: %w", k.Name, err)
	}
	if !k.Removing {
		if err := filetree.Remove(removing); err != nil {
			return failed(err)
		}
		if err := os.Rename(at, removing); err != nil {
			return failed(err)
		}
	}
	switch used, err := inUse(); {
	case err != nil:
		return failed(errors.Join(err, os.Rename(removing, at)))
	case used:
		if err := os.Rename(removing, at); err != nil {
			return failed(err)
		}
		return false, nil
	}
	if err := atomicfile.SyncDir(d.Layout.KeptDirs()); err != nil {
		return failed(err)
	}
	if err := filetree.Remove(removing); err != nil {
		return failed(err)
	}
	return true, nil
}
