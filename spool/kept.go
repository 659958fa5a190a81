package spool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// KeptDir holds the results of a bundle that stay on the shared disk. It is
// made by renaming a run directory, so it is whole as soon as it is there.
// Release leaves it alone.
func (l Layout) KeptDir(bundle string) string { return filepath.Join(l.KeptDirs(), bundle) }

// KeptDirs holds the kept results of all bundles.
func (l Layout) KeptDirs() string { return filepath.Join(string(l), "kept") }

// asidePrefix begins the names of kept results that are being removed.
const asidePrefix = ".removing-"

// KeptAside is where the kept results of a bundle are while they are removed.
func (l Layout) KeptAside(bundle string) string { return l.KeptDir(asidePrefix + bundle) }

// Kept is a directory of results that are kept.
type Kept struct {
	// Name is the directory's, in Layout.KeptDirs.
	Name string
	// Bundle is whose results they are.
	Bundle string
	// Superseded is set for results of an earlier life of the bundle: it was
	// run again, and what is kept under its own name is of the last time.
	Superseded bool
	// Removing is set for what a removal that was cut short has left.
	Removing bool
}

// keptName is the form of the names of kept results: with asidePrefix while they
// are removed, the bundle's UUID, and a number for those of an earlier life.
var keptName = regexp.MustCompile(`^(` + regexp.QuoteMeta(asidePrefix) + `)?(0x[0-9a-f]{32})(\.[1-9][0-9]*)?$`)

// Kept lists the kept results, in the order of their names. What has another
// name is somebody else's, and left out.
func (d Disk) Kept() ([]Kept, error) {
	entries, err := os.ReadDir(d.Layout.KeptDirs())
	if err != nil {
		return nil, fmt.Errorf("list kept results: %w", err)
	}
	kept := make([]Kept, 0, len(entries))
	for _, e := range entries {
		parts := keptName.FindStringSubmatch(e.Name())
		if parts == nil || !e.IsDir() {
			continue
		}
		kept = append(kept, Kept{Name: e.Name(), Bundle: parts[2], Superseded: parts[3] != "", Removing: parts[1] != ""})
	}
	return kept, nil
}

// KeptSize adds up what kept results hold.
func (d Disk) KeptSize(ctx context.Context, k Kept) (bytes, entries int64, err error) {
	top := d.Layout.KeptDir(k.Name)
	err = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if path == top && err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil // the command closed it to its owner; it counts as empty
		}
		entries++
		if err == nil && e.Type().IsRegular() {
			info, infoErr := e.Info()
			if infoErr == nil {
				bytes += info.Size()
			}
		}
		return errors.Join(err, ctx.Err())
	})
	if err != nil {
		return 0, 0, fmt.Errorf("look through kept results %s: %w", k.Name, err)
	}
	return bytes, entries, nil
}

// RemoveKept removes kept results, unless somebody uses them: inUse is asked
// once they have been renamed, so that nobody begins to use them any more, and
// they are put back if it says so or fails. It says whether they were removed.
func (d Disk) RemoveKept(k Kept, inUse func() (bool, error)) (bool, error) {
	at := d.Layout.KeptDir(strings.TrimPrefix(k.Name, asidePrefix))
	aside := d.Layout.KeptDir(asidePrefix + filepath.Base(at))
	failed := func(err error) (bool, error) {
		return false, fmt.Errorf("remove kept results %s: %w", k.Name, err)
	}
	if !k.Removing {
		if err := filetree.Remove(aside); err != nil {
			return failed(err)
		}
		if err := os.Rename(at, aside); err != nil {
			return failed(err)
		}
	}
	switch used, err := inUse(); {
	case err != nil:
		return failed(errors.Join(err, os.Rename(aside, at)))
	case used:
		if err := os.Rename(aside, at); err != nil {
			return failed(err)
		}
		return false, nil
	}
	if err := atomicfile.SyncDir(d.Layout.KeptDirs()); err != nil {
		return failed(err)
	}
	if err := filetree.Remove(aside); err != nil {
		return failed(err)
	}
	return true, nil
}
