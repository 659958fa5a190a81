package store

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
)

// tree is contents, and the place of their copy.
type tree struct {
	ctx      context.Context //nolint:containedctx // of one copy
	from, to string
	link     bool
	copied   func(int64)
}

// Extent is the amount of contents that an import copies.
type Extent struct {
	codalab.Extent
	// Files is the number of files and links.
	Files int
	// Special is the number of pipes, sockets and devices, which are left out.
	Special int
	// Unreadable are files that cannot be read.
	Unreadable []string
}

// MeasureContents returns the amount of contents that an import copies from a path, and the files that it
// could not read.
func MeasureContents(ctx context.Context, path string) (Extent, error) {
	from, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Extent{}, err
	}
	t := tree{ctx: ctx, from: from}
	return t.walk(func(string, string, fs.FileInfo) error { return nil })
}

// walk calls visit for all entries of the contents, with their places in the copy. Without a place for the
// copy it records unreadable files; otherwise they are errors.
func (t tree) walk(visit func(from, to string, info fs.FileInfo) error) (found Extent, err error) {
	err = filepath.WalkDir(t.from, func(path string, d fs.DirEntry, err error) error {
		if t.ctx.Err() != nil {
			return t.ctx.Err()
		}
		if t.to == "" && errors.Is(err, fs.ErrPermission) {
			found.Unreadable = append(found.Unreadable, path)
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			found.Bytes += contents.DirectorySize
			found.Entries++
		case info.Mode().IsRegular() || info.Mode().Type() == fs.ModeSymlink:
			found.Bytes += info.Size()
			found.Entries++
			found.Files++
		default:
			found.Special++
			return nil
		}
		if t.to == "" {
			if info.Mode().IsRegular() && unix.Access(path, unix.R_OK) != nil {
				found.Unreadable = append(found.Unreadable, path)
			}
			return nil
		}
		below, err := filepath.Rel(t.from, path)
		if err != nil {
			return err
		}
		return visit(path, filepath.Join(t.to, below), info)
	})
	return found, err
}

// copy makes the copy, in which the owner may read everything and write directories.
func (t tree) copy() (Extent, error) {
	return t.walk(func(from, to string, info fs.FileInfo) error {
		switch {
		case info.IsDir():
			mode := info.Mode().Perm() | 0o700
			return errors.Join(os.Mkdir(to, mode), os.Chmod(to, mode))
		case !info.Mode().IsRegular():
			target, err := os.Readlink(from)
			if err != nil {
				return err
			}
			return os.Symlink(target, to)
		}
		if t.link {
			err := os.Link(from, to)
			if err == nil {
				t.copied(info.Size())
			}
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				return err
			}
			// Else the files are on two disks, or the disk or the file's owner (proc(5): protected_hardlinks)
			// allows no more links.
		}
		return t.copyFile(from, to, info)
	})
}

// copyFile copies a regular file with its time. It ends early when the context does.
func (t tree) copyFile(from, to string, info fs.FileInfo) (err error) {
	// The flags guard against a file that was replaced by a link or a pipe.
	in, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	mode := info.Mode().Perm() | 0o400
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if err != nil {
		return err
	}
	const step = 64 << 20 // each step is one system call where the disks allow it
	for err == nil {
		if err = t.ctx.Err(); err == nil {
			var n int64
			n, err = io.CopyN(out, in, step)
			t.copied(n)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, out.Chmod(mode), out.Close(), os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// isCopied reports whether the copy is there, with the same names, kinds, sizes and times of files.
func (t tree) isCopied() (same bool, found Extent, err error) {
	if _, err := os.Lstat(t.to); errors.Is(err, fs.ErrNotExist) {
		return false, found, nil
	}
	differs := errors.New("the copy differs")
	original := 0
	found, err = t.walk(func(from, to string, info fs.FileInfo) error {
		original++
		had, err := os.Lstat(to)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return differs
		case err != nil:
			return err
		case had.Mode().Type() != info.Mode().Type():
			return differs
		case info.Mode().IsRegular() && (had.Size() != info.Size() || !had.ModTime().Equal(info.ModTime())):
			return differs
		case info.Mode().Type() == fs.ModeSymlink:
			return sameTarget(from, to, differs)
		}
		return nil
	})
	if errors.Is(err, differs) {
		return false, found, nil
	}
	if err != nil {
		return false, found, err
	}
	copied := 0
	err = filepath.WalkDir(t.to, func(_ string, _ fs.DirEntry, err error) error {
		copied++
		return err
	})
	return copied == original, found, err
}

// sameTarget compares two symbolic links.
func sameTarget(a, b string, differs error) error {
	first, err := os.Readlink(a)
	if err != nil {
		return err
	}
	second, err := os.Readlink(b)
	if err == nil && first != second {
		return differs
	}
	return err
}
