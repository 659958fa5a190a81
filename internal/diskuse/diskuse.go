// Package diskuse measures the disk space of files that a hostile program may have made, and may change
// during the measurement.
package diskuse

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/treewalk"
)

// ErrClosed means directories that the calling user may not read.
var ErrClosed = errors.New("directories are closed to this user")

// Tree is a directory to measure.
type Tree struct {
	Dir string
	// Since, if not zero, leaves out files that have not changed after it, by the clock of their file
	// system. No program without privileges can set that time (inode(7): st_ctim).
	Since time.Time
	// Open makes the calling user open own directories that are closed. No program may change them
	// during the measurement.
	Open bool
}

// Measure adds up what the files below directories take: each file's size with its holes, or its blocks
// if these are more, and the blocks of the directories below. It counts a file with several names
// once, follows no symbolic link, and omits files that vanish. An error means that there may be more.
func Measure(ctx context.Context, trees ...Tree) (bytes int64, err error) {
	sum, err := Count(ctx, trees...)
	return sum.Bytes, err
}

// Sum is the result of a Count.
type Sum struct {
	// Bytes is the result of Measure.
	Bytes int64
	// OnDisk is the blocks of all files and directories.
	OnDisk int64
	// Entries is the number of names.
	Entries int64
}

// Count is Measure with further sums.
func Count(ctx context.Context, trees ...Tree) (Sum, error) {
	m := measurement{seen: map[File]bool{}}
	var errs []error
	for _, t := range trees {
		errs = append(errs, m.tree(ctx, t))
	}
	return m.sum, errors.Join(errs...)
}

// File identifies a file of this host.
type File struct{ Dev, Ino uint64 }

// FileOf returns the file that stat(2) describes.
func FileOf(st *unix.Stat_t) File {
	return File{uint64(st.Dev), st.Ino} //nolint:unconvert // of another size on some architectures
}

type measurement struct {
	sum  Sum
	seen map[File]bool // of those with several names
}

// Of returns what a file takes.
func Of(st *unix.Stat_t) int64 { return max(st.Size, blocksOf(st)) }

// Add adds sizes. A file system may have files so large that their sum exceeds the largest number, which is
// the sum then.
func Add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func blocksOf(st *unix.Stat_t) int64 { return st.Blocks * 512 } // stat(2)

// tree measures a tree. It returns the first error, and measures on after it.
func (m *measurement) tree(ctx context.Context, t Tree) error {
	var failed error
	fail := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	err := treewalk.Walk(unix.AT_FDCWD, t.Dir, treewalk.Visitor{
		Entry: func(dir int, name string) (isDir bool, err error) {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			isDir, err = m.entry(dir, name, t)
			fail(err)
			return isDir, nil
		},
		Open: func(dir int, name string) (fd int, err error) { return openDir(dir, name, t.Open) },
		Failed: func(_ int, name string, err error) error {
			switch {
			case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
				fail(ErrClosed)
			case !treewalk.IsGone(err):
				fail(&fs.PathError{Op: "open", Path: name, Err: err})
			}
			return nil
		},
	})
	return errors.Join(failed, err)
}

// entry measures an entry of an open directory.
func (m *measurement) entry(dir int, name string, t Tree) (isDir bool, err error) {
	var st unix.Stat_t
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case treewalk.IsGone(err):
		return false, nil
	case errors.Is(err, unix.EACCES): // a directory that may be read and not searched
		return false, ErrClosed
	case err != nil:
		return false, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	isDir = st.Mode&unix.S_IFMT == unix.S_IFDIR
	if changed := time.Unix(st.Ctim.Unix()); changed.After(t.Since) {
		m.add(&st, isDir)
	}
	return isDir, nil
}

func (m *measurement) add(st *unix.Stat_t, isDir bool) {
	m.sum.Entries++
	if isDir {
		m.sum.Bytes = Add(m.sum.Bytes, blocksOf(st))
		m.sum.OnDisk = Add(m.sum.OnDisk, blocksOf(st))
		return
	}
	if st.Nlink > 1 {
		f := FileOf(st)
		if m.seen[f] {
			return
		}
		m.seen[f] = true
	}
	m.sum.Bytes = Add(m.sum.Bytes, Of(st))
	m.sum.OnDisk = Add(m.sum.OnDisk, blocksOf(st))
}

// openDir opens a directory.
func openDir(dir int, name string, openUp bool) (fd int, err error) {
	fd, err = treewalk.OpenDir(dir, name)
	if !openUp || err == nil && unix.Faccessat(fd, ".", unix.X_OK, 0) == nil || err != nil && !errors.Is(err, unix.EACCES) {
		return fd, err
	}
	if err == nil {
		_ = unix.Close(fd)
	}
	if err := treewalk.Chmod(dir, name, 0o700); err != nil {
		return -1, err
	}
	return treewalk.OpenDir(dir, name)
}
