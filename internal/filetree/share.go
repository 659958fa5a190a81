package filetree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/treewalk"
)

// Sharing says which files Share makes the same.
type Sharing struct {
	// Times means that files with other times of modification differ.
	Times bool
	// Partly means that Share goes on after a file that differs.
	Partly bool
	// Vain is the number of bytes of files that may be read before they differ. Share lowers it, and with less than 1 reads no
	// file. So nobody keeps a disk busy with many large files that differ in their last bytes. Nil means no bound.
	Vain *int64
}

// Share makes the files of a file or directory that equal the files of another one the same files: hard links, so that
// both take the room of one. It compares the files at the same paths byte by byte, and ends at the first that differs:
// also in its mode or owner. It returns whether no file differs. Empty files, directories and symbolic links stay the
// tree's own. Share follows no symbolic link. A tree may have any depth.
//
// Nobody else may change the tree meanwhile. Each of its files is there and whole at any moment, also after a crash,
// but for one more name of a file at the path of the tree with the suffix ".shared". The other one may vanish meanwhile,
// and must not change in any other way. Where the disk allows no link, the tree keeps its files, and that is no error.
func Share(ctx context.Context, tree, other string, how Sharing) (equal bool, err error) {
	s := sharer{ctx: ctx, Sharing: how, spare: tree + ".shared"}
	defer s.close()
	isDir, err := s.entry(place{unix.AT_FDCWD, tree}, place{unix.AT_FDCWD, other})
	if err == nil && isDir {
		err = s.tree(tree, other)
	}
	if err != nil && !errors.Is(err, errDiffers) && !errors.Is(err, errNoLink) {
		return false, fmt.Errorf("share the files of %s: %w", other, err)
	}
	return err == nil && !s.differs, nil
}

var (
	// errDiffers means an entry that the other tree does not have so.
	errDiffers = errors.New("the trees differ")
	// errNoLink means that a file has vanished, has too many names, or is on a disk without links.
	errNoLink = errors.New("no link is possible")
)

// sharer is one call of Share.
type sharer struct {
	ctx context.Context //nolint:containedctx // of one call
	Sharing
	spare   string // the path for a link that has not replaced a file yet
	buf     []byte
	differs bool // an entry differed, and the walk went on
	companion
}

// tree shares the files of a directory. The walk in the other tree follows the one in the tree itself.
func (s *sharer) tree(tree, other string) error {
	top := true
	return treewalk.Walk(unix.AT_FDCWD, tree, treewalk.Visitor{
		Entry: func(dir int, name string) (enter bool, err error) {
			enter, err = s.entry(place{dir, name}, place{s.last(), name})
			if s.Partly && errors.Is(err, errDiffers) {
				s.differs = true
				return false, nil
			}
			return enter, err
		},
		Open: func(dir int, name string) (fd int, err error) {
			at := place{unix.AT_FDCWD, other}
			if !top {
				at = place{s.last(), name}
			}
			top = false
			followed, err := treewalk.OpenDir(at.dir, at.name)
			if err != nil {
				return -1, errDiffers
			}
			if err := s.push(followed); err != nil {
				return -1, err
			}
			return treewalk.OpenDir(dir, name)
		},
		Leave: func(int, string) (again bool, err error) { return false, s.pop() },
	})
}

// entry shares an entry, unless it is a directory.
func (s *sharer) entry(own, other place) (isDir bool, err error) {
	if err := s.ctx.Err(); err != nil {
		return false, err
	}
	var st, otherSt unix.Stat_t
	if err := unix.Fstatat(own.dir, own.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, own.failed("stat", err)
	}
	if unix.Fstatat(other.dir, other.name, &otherSt, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != otherSt.Mode&unix.S_IFMT {
		return false, errDiffers
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return true, nil
	case st.Mode&unix.S_IFMT != unix.S_IFREG, st.Size == 0, st.Dev == otherSt.Dev && st.Ino == otherSt.Ino:
		return false, nil
	case st.Size != otherSt.Size, st.Mode != otherSt.Mode, st.Uid != otherSt.Uid, st.Gid != otherSt.Gid, s.Times && st.Mtim != otherSt.Mtim:
		return false, errDiffers
	}
	return false, s.file(own, other, otherSt)
}

// file shares a file, if the other one has the same bytes.
func (s *sharer) file(own, other place, st unix.Stat_t) error {
	if err := s.compare(own, other); err != nil {
		return err
	}
	if unix.Linkat(other.dir, other.name, unix.AT_FDCWD, s.spare, 0) != nil {
		if s.Vain != nil {
			*s.Vain -= st.Size
		}
		return errNoLink
	}
	var linked unix.Stat_t
	err := unix.Lstat(s.spare, &linked)
	switch {
	case err != nil:
	case linked.Ino != st.Ino:
		err = errDiffers // the other tree shares its file just now, too
	default:
		err = own.failed("replace", unix.Renameat(unix.AT_FDCWD, s.spare, own.dir, own.name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(s.spare))
	}
	return nil
}

// compare returns errDiffers for files that do not have the same bytes.
func (s *sharer) compare(own, other place) error {
	if s.Vain != nil && *s.Vain < 1 {
		return errDiffers
	}
	var files [2]*os.File
	for i, p := range []place{own, other} {
		fd, err := unix.Openat(p.dir, p.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return errDiffers
		}
		files[i] = os.NewFile(uintptr(fd), p.name)
		defer func() { _ = files[i].Close() }() // only read
	}
	read, err := s.compareBytes(files[0], files[1])
	if s.Vain != nil && errors.Is(err, errDiffers) {
		*s.Vain -= read
	}
	return err
}

// compareBytes returns errDiffers for files that do not have the same bytes, and the number of bytes that it has read of each.
func (s *sharer) compareBytes(own, other *os.File) (read int64, err error) {
	const step = 256 << 10
	if s.buf == nil {
		s.buf = make([]byte, 2*step)
	}
	a, b := s.buf[:step], s.buf[step:]
	for {
		if err := s.ctx.Err(); err != nil {
			return read, err
		}
		n, err := io.ReadFull(own, a)
		m, otherErr := io.ReadFull(other, b)
		read += int64(n)
		switch {
		case !bytes.Equal(a[:n], b[:m]):
			return read, errDiffers
		case isEnd(err) && isEnd(otherErr):
			return read, nil
		case err != nil, otherErr != nil:
			return read, errDiffers
		}
	}
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
