package filetree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Clone copies a directory like Copy, to a path at which nothing is. A process that still writes into the original
// changes nothing in the copy, and none that writes into the copy changes the original: the files share their blocks
// where the disk can do that (ioctl_ficlone(2)), and are copied elsewhere, but are never hard links to the original.
//
// Files that have several names in the original are one file with these names in the copy, so that the copy is no larger.
// Holes stay holes. A directory or a file that is closed to its owner is opened in the original first (OpenUp). files
// is called after each file with the number of files so far; it may be nil. After a failure a part of the copy may be
// there.
func Clone(ctx context.Context, from, to string, files func(copied int)) error {
	if files == nil {
		files = func(int) {}
	}
	err := clone(ctx, from, to, files)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, openErr := os.OpenRoot(from)
	if openErr != nil {
		return err
	}
	OpenUp(root)
	if err := errors.Join(root.Close(), Remove(to)); err != nil {
		return err
	}
	return clone(ctx, from, to, files)
}

func clone(ctx context.Context, from, to string, files func(copied int)) (err error) {
	c := copier{ctx: ctx, clones: &clones{files: files}, several: several{dir: to + ".names"}}
	defer c.close()
	err = c.several.open()
	if err == nil {
		err = c.tree(from, to)
	}
	if err := errors.Join(err, c.several.remove()); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// clones is the state of one Clone.
type clones struct {
	files  func(copied int)
	copied int
}

// several are the copies of files that have several names, so that these are names of one copy. They have names in a
// directory next to the copy, because a path within the copy may be longer than the system accepts.
type several struct {
	dir  string
	file *os.File // the directory; nil if it is not open
}

func (l *several) open() error {
	err := errors.Join(Remove(l.dir), os.Mkdir(l.dir, 0o700))
	if err == nil {
		l.file, err = os.Open(l.dir)
	}
	return err
}

func (l *several) remove() error {
	if l.file == nil {
		return nil
	}
	return errors.Join(l.file.Close(), Remove(l.dir))
}

// name is the name of a file's copy in the directory.
func (l *several) name(st *unix.Stat_t) string {
	return strconv.FormatUint(uint64(st.Dev), 36) + "-" + strconv.FormatUint(st.Ino, 36) //nolint:unconvert // of another size on some architectures
}

// copied makes to one more name of a file's copy, and returns false if it cannot.
func (l *several) copied(to place, st *unix.Stat_t) bool {
	return st.Nlink > 1 && l.file != nil && unix.Linkat(int(l.file.Fd()), l.name(st), to.dir, to.name, 0) == nil
}

// keep keeps the copy of a file for copied. A failure only makes the copy larger: the disk has no links, or allows no more of
// the file.
func (l *several) keep(to place, st *unix.Stat_t) {
	if st.Nlink > 1 && l.file != nil {
		_ = unix.Unlinkat(int(l.file.Fd()), l.name(st), 0)
		_ = unix.Linkat(to.dir, to.name, int(l.file.Fd()), l.name(st), 0)
	}
}

func (l *clones) count() error {
	l.copied++
	l.files(l.copied)
	return nil
}

// copyStep is the number of bytes between two checks of a context.
const copyStep = 64 << 20

// CopyData copies the data of a regular file to an empty one, and keeps its holes. It ends early with the context's
// cause.
func CopyData(ctx context.Context, to, from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	for at := int64(0); at < size; {
		data, err := from.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // only a hole follows
		}
		hole := size
		if err != nil {
			data = at // the disk does not support it
		} else if hole, err = from.Seek(data, unix.SEEK_HOLE); err != nil {
			hole = size
		}
		at = min(hole, data+copyStep, size)
		if err := copyPart(to, from, data, at); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return to.Truncate(size)
}

// copyPart copies a part of a file, in one system call where the disks allow it.
func copyPart(to, from *os.File, begin, end int64) error {
	for _, f := range []*os.File{to, from} {
		if _, err := f.Seek(begin, io.SeekStart); err != nil {
			return err
		}
	}
	_, err := io.Copy(to, io.LimitReader(from, end-begin))
	return err
}
