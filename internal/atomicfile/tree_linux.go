package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/treewalk"
)

// SyncTree flushes the files and directories of a tree to their disk. It flushes a few
// one by one, which does not slow down other writers. If there are many, it flushes the
// whole file system, which is then faster. All must be readable, and on one disk. The tree
// may have any depth.
func SyncTree(dir string) error {
	const few = 64
	paths := 0
	many := errors.New("many files")
	err := treewalk.Walk(unix.AT_FDCWD, dir, treewalk.Visitor{Entry: func(at int, name string) (bool, error) {
		kind, err := kindOf(at, name)
		if kind == unix.S_IFREG || kind == unix.S_IFDIR {
			paths++
		}
		if err == nil && paths >= few {
			err = many
		}
		return kind == unix.S_IFDIR, err
	}})
	switch {
	case errors.Is(err, many):
		return SyncDisk(dir)
	case err == nil:
		err = syncEach(dir)
	}
	if err != nil {
		return fmt.Errorf("flush %s: %w", dir, err)
	}
	return nil
}

// kindOf returns the kind of an entry of an open directory, as stat(2) does in st_mode.
func kindOf(dir int, name string) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return st.Mode & unix.S_IFMT, nil
}

// syncEach flushes the files and directories of a tree one by one.
func syncEach(dir string) error {
	return treewalk.Walk(unix.AT_FDCWD, dir, treewalk.Visitor{
		Entry: func(at int, name string) (bool, error) {
			kind, err := kindOf(at, name)
			if err != nil || kind != unix.S_IFREG {
				return kind == unix.S_IFDIR, err
			}
			fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				return false, &fs.PathError{Op: "open", Path: name, Err: err}
			}
			return false, errors.Join(unix.Fsync(fd), unix.Close(fd))
		},
		Open: func(at int, name string) (int, error) {
			fd, err := treewalk.OpenDir(at, name)
			if err != nil {
				return fd, err
			}
			if err := unix.Fsync(fd); err != nil {
				return -1, errors.Join(err, unix.Close(fd))
			}
			return fd, nil
		},
	})
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
