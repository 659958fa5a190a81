// Package atomicfile publishes files on disks that other hosts read too, and
// flushes what is written there.
//
// A reader sees either nothing or the whole content: it is written to a
// temporary in the same directory, flushed, and renamed. The directory is
// flushed as well, so what was published survives a crash of the host.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Write publishes data as path, replacing what was there. The directory must
// exist.
func Write(path string, data []byte, perm fs.FileMode) error {
	tmp, err := Temporary(path, data, perm)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(fmt.Errorf("publish %s: %w", path, err), os.Remove(tmp))
	}
	return SyncDir(filepath.Dir(path))
}

// Temporary writes data, flushed, to a new file beside path and returns its
// name. The caller renames, links or removes it.
func Temporary(path string, data []byte, perm fs.FileMode) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp-*")
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		return "", errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// SyncDir flushes a directory's entries to its disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("flush %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("flush %s: %w", dir, err)
	}
	return nil
}

// SyncTree flushes the files and directories of a tree to their disk. It flushes a few
// one by one, which does not slow down other writers. If there are many, it flushes the
// whole file system, which is then faster. All must be readable, and on one disk.
func SyncTree(dir string) error {
	const few = 64
	var paths []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && (d.IsDir() || d.Type().IsRegular()) {
			paths = append(paths, path)
		}
		if len(paths) > few {
			return fs.SkipAll
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("flush %s: %w", dir, err)
	}
	if len(paths) > few {
		return SyncDisk(dir)
	}
	for _, path := range paths {
		if err := SyncDir(path); err != nil { // flushes files as well
			return err
		}
	}
	return nil
}

// SyncDisk flushes the file system on which a file or directory lies
// (syncfs(2)). That costs one commit of its journal, however much is new; on a
// busy disk it waits for what others have written too.
func SyncDisk(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("flush the disk of %s: %w", path, err)
	}
	if err := errors.Join(unix.Syncfs(int(f.Fd())), f.Close()); err != nil {
		return fmt.Errorf("flush the disk of %s: %w", path, err)
	}
	return nil
}
