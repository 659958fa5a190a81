package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

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

// SyncDisk flushes the file system of a file or directory (syncfs(2)). That costs one
// commit of the file system's journal for any number of new files; on a busy disk it also
// waits for other programs' data.
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
