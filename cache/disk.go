package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// syncsAtOnce is how many files are flushed at a time.
const syncsAtOnce = 16

// wreckAge is how old an unfinished entry is before it counts as a wreck.
const wreckAge = 24 * time.Hour

// makeDir makes a private directory and those above it, each flushed.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a directory: %w", err)
	}
	return atomicfile.SyncDir(parent)
}

// syncTree flushes a file, or a directory with all that is in it.
func syncTree(root string) error {
	var group errgroup.Group
	group.SetLimit(syncsAtOnce)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil && d != nil && d.IsDir() && errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("flush %s: its owner may not read it: %w", name, err)
		}
		if err != nil {
			return err
		}
		if d.IsDir() || d.Type().IsRegular() {
			group.Go(func() error { return syncFile(name) })
		}
		return nil
	})
	if err = errors.Join(err, group.Wait()); err != nil {
		return fmt.Errorf("flush its content: %w", err)
	}
	return nil
}

// syncFile flushes one file or directory.
func syncFile(name string) (err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrPermission) {
		var restore func() error
		if restore, err = makeReadable(name); err == nil {
			defer func() { err = errors.Join(err, restore()) }()
			f, err = os.Open(name)
		}
	}
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	return errors.Join(f.Sync(), f.Close())
}

// makeReadable lets the owner read a file until restore is called.
func makeReadable(name string) (restore func() error, err error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err //nolint:wrapcheck // worded by syncTree
	}
	mode := info.Mode()
	if err := os.Chmod(name, mode|0o400); err != nil {
		return nil, err //nolint:wrapcheck // worded by syncTree
	}
	return func() error { return os.Chmod(name, mode) }, nil
}

// sweep removes the wrecks in a cache. How old they are is told by the disk's
// own clock.
func sweep(dir string) error {
	now, err := diskTime(dir)
	if err != nil {
		return err
	}
	wrecks, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*", "*", fillPrefix+"*"))
	if err != nil {
		return fmt.Errorf("find wrecks: %w", err)
	}
	for _, wreck := range wrecks {
		info, err := os.Lstat(wreck)
		if err != nil || now.Sub(info.ModTime()) < wreckAge {
			continue // it has just been published or removed, or it may be alive
		}
		if err := filetree.Remove(wreck); err != nil {
			return err
		}
	}
	return nil
}

// escapeGlob makes a pattern of a name.
func escapeGlob(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// diskTime is the time by which the disk stamps files.
func diskTime(dir string) (time.Time, error) {
	f, err := os.CreateTemp(dir, ".clock-")
	if err != nil {
		return time.Time{}, fmt.Errorf("read the disk's clock: %w", err)
	}
	info, err := f.Stat()
	if err = errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
		return time.Time{}, fmt.Errorf("read the disk's clock: %w", err)
	}
	return info.ModTime(), nil
}
