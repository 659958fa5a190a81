package filetree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/treewalk"
)

// Copy copies a file or a directory. With link, files are hard links if the file system allows that; else files that have
// several names in the original are one file with these names in the copy, and the original must not change. Copy follows no
// symbolic link, and leaves out pipes, sockets and devices. The owner may read everything in the copy, and change its
// directories. A tree may have any depth.
func Copy(ctx context.Context, from, to string, link bool) error {
	c := copier{ctx: ctx, link: link, several: several{dir: to + ".names"}}
	defer c.close()
	isDir, err := c.entry(place{unix.AT_FDCWD, from}, place{unix.AT_FDCWD, to})
	if err == nil && isDir {
		err = c.tree(from, to)
	}
	if err := errors.Join(err, c.several.remove()); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// place is a name in an open directory, or in unix.AT_FDCWD.
type place struct {
	dir  int
	name string
}

func (p place) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: doing, Path: p.name, Err: err}
}

// copier is one call of Copy or Clone.
type copier struct {
	ctx    context.Context //nolint:containedctx // of one call
	link   bool
	clones *clones // of Clone; nil for Copy
	// several is open if the copy of a file with several names gets them, too.
	several several
	companion
}

// tree copies a directory. The walk in the copy follows the one in the original.
func (c *copier) tree(from, to string) error {
	top := true
	return treewalk.Walk(unix.AT_FDCWD, from, treewalk.Visitor{
		Entry: func(dir int, name string) (enter bool, err error) {
			return c.entry(place{dir, name}, place{c.last(), name})
		},
		Open: func(dir int, name string) (fd int, err error) {
			fd, err = treewalk.OpenDir(dir, name)
			if err != nil {
				return fd, err
			}
			at := place{unix.AT_FDCWD, to}
			if !top {
				at = place{c.last(), name}
			}
			top = false
			if err := c.enter(fd, at); err != nil {
				return fd, errors.Join(err, unix.Close(fd))
			}
			return fd, nil
		},
		Leave: func(int, string) (again bool, err error) { return false, c.pop() },
	})
}

// enter makes the copy of an open directory.
func (c *copier) enter(original int, at place) error {
	var st unix.Stat_t
	err := unix.Fstat(original, &st)
	mode := st.Mode&0o777 | 0o700
	if err == nil {
		err = unix.Mkdirat(at.dir, at.name, mode)
	}
	if err != nil {
		return at.failed("make directory", err)
	}
	fd, err := treewalk.OpenDir(at.dir, at.name)
	if err != nil {
		return at.failed("open directory", err)
	}
	if err := c.push(fd); err != nil {
		return at.failed("open directory", err)
	}
	return at.failed("set mode", unix.Fchmod(fd, mode)) // the umask may have taken some
}

// entry copies an entry, unless it is a directory.
func (c *copier) entry(from, to place) (isDir bool, err error) {
	if err := c.ctx.Err(); err != nil {
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(from.dir, from.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, from.failed("stat", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return true, nil
	case unix.S_IFLNK:
		return false, copySymlink(from, to, st.Size)
	case unix.S_IFREG:
		if c.link {
			err := unix.Linkat(from.dir, from.name, to.dir, to.name, 0)
			if err == nil || errors.Is(err, unix.ENOENT) {
				return false, from.failed("link", err)
			}
			// Else the files are on two disks, or the disk or the file's owner (proc(5): protected_hardlinks)
			// allows no more links.
		}
		return false, c.regular(from, to, &st)
	}
	return false, nil
}

// regular copies a regular file, unless it has been copied under another name.
func (c *copier) regular(from, to place, st *unix.Stat_t) error {
	if c.link && st.Nlink > 1 && c.several.file == nil {
		if err := c.several.open(); err != nil {
			return err
		}
	}
	if !c.several.copied(to, st) {
		if err := c.file(from, to, st); err != nil {
			return err
		}
		c.several.keep(to, st)
	}
	if c.clones != nil {
		return c.clones.count()
	}
	return nil
}

func copySymlink(from, to place, size int64) error {
	const longest = 1 << 16
	target := make([]byte, min(size, longest)+1)
	n, err := unix.Readlinkat(from.dir, from.name, target)
	if err != nil {
		return from.failed("read link", err)
	}
	return to.failed("make link", unix.Symlinkat(string(target[:n]), to.dir, to.name))
}

// file copies a regular file with its mode and time. It ends early when the context does.
func (c *copier) file(from, to place, st *unix.Stat_t) (err error) {
	// The flags guard against a file that was replaced by a link or a pipe.
	fd, err := unix.Openat(from.dir, from.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return from.failed("open", err)
	}
	in := os.NewFile(uintptr(fd), from.name)
	defer func() { _ = in.Close() }() // it was only read
	mode := st.Mode&0o777 | 0o400
	fd, err = unix.Openat(to.dir, to.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, mode|0o200)
	if err != nil {
		return to.failed("create", err)
	}
	out := os.NewFile(uintptr(fd), to.name)
	if c.clones == nil || unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil { // the disk does not share blocks
		err = CopyData(c.ctx, out, in)
	}
	changed, _ := unix.TimeToTimespec(time.Unix(st.Mtim.Unix()))
	return errors.Join(err, out.Chmod(fs.FileMode(mode)), out.Close(),
		to.failed("set time", unix.UtimesNanoAt(to.dir, to.name, []unix.Timespec{changed, changed}, unix.AT_SYMLINK_NOFOLLOW)))
}
