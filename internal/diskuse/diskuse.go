// Package diskuse measures the disk space of files that a hostile program may have made, and may change
// during the measurement.
package diskuse

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// MaxDepth is the depth of directories that can be measured. Each level takes an open file.
const MaxDepth = 500

// ErrTooDeep means directories below MaxDepth levels.
var ErrTooDeep = errors.New("directories lie too deep in one another to be measured")

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
		errs = append(errs, m.dir(ctx, unix.AT_FDCWD, t.Dir, t, 0))
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

// dir measures a directory. It returns the first error, and measures on after it.
func (m *measurement) dir(ctx context.Context, at int, name string, t Tree, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if depth > MaxDepth {
		return ErrTooDeep
	}
	fd, err := openDir(at, name, t.Open)
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return ErrClosed
	case isGone(err):
		return nil
	case err != nil:
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	d := os.NewFile(uintptr(fd), name)
	defer func() { _ = d.Close() }() // it was only read
	var failed error
	for {
		const some = 256
		names, err := d.Readdirnames(some)
		for _, n := range names {
			if err := m.entry(ctx, fd, n, t, depth); failed == nil {
				failed = err
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF):
			return failed
		case err != nil:
			return errors.Join(failed, err)
		}
	}
}

// entry measures an entry of an open directory, with everything below it.
func (m *measurement) entry(ctx context.Context, dir int, name string, t Tree, depth int) error {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case isGone(err):
		return nil
	case errors.Is(err, unix.EACCES): // a directory that may be read and not searched
		return ErrClosed
	case err != nil:
		return &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if changed := time.Unix(st.Ctim.Unix()); changed.After(t.Since) {
		m.add(&st, isDir)
	}
	if !isDir {
		return nil
	}
	return m.dir(ctx, dir, name, t, depth+1)
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

// openDir opens a directory. A pipe in its place does not block.
func openDir(at int, name string, openUp bool) (fd int, err error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err = unix.Openat(at, name, flags, 0)
	if !openUp || err == nil && unix.Faccessat(fd, ".", unix.X_OK, 0) == nil || err != nil && !errors.Is(err, unix.EACCES) {
		return fd, err
	}
	if err == nil {
		_ = unix.Close(fd)
	}
	if err := unix.Fchmodat(at, name, 0o700, 0); err != nil {
		return -1, err
	}
	return unix.Openat(at, name, flags, 0)
}

// isGone reports whether a file has vanished, or something else than a directory has its name now.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}
