// Package contents reads the contents of bundles in the form of CodaLab's REST API: contents
// that a server has stored, and those of a running bundle, whose command may change them at
// the same time.
//
// It reads through an os.Root, and so nothing outside of that: it describes a symbolic link
// as a link, and follows it only if it leads to another place inside. Pipes and devices
// count as absent, and block no reader.
package contents

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/treewalk"
)

// The reasons for which a target cannot be read. Status gives each its HTTP form.
var (
	// ErrNotFound means that there is nothing of that name, or nothing that
	// may be read.
	ErrNotFound = errors.New("not found")
	// ErrLink means a symbolic link that leads out of the bundle.
	ErrLink = errors.New("a link that leads out of the bundle")
	// ErrDirectory means that the target is a directory, but a file is needed.
	ErrDirectory = errors.New("a directory")
	// ErrTooMany means a directory with more entries than one answer holds.
	ErrTooMany = errors.New("too many entries")
	// ErrReadType means a read message of an unknown kind.
	ErrReadType = errors.New("unsupported read type")
)

// maxEntries bounds the entries of one description.
const maxEntries = 200_000

// DirectorySize is a directory's share of a bundle's size on any file system, as on ext4.
const DirectorySize = 4096

// Info describes the target at p ("" is the root itself) and its descendants down to the
// given depth: 0 for none, 1 for a directory's entries (codalab/worker/download_util.py:
// _compute_target_info_local). It does not follow a link at the end of p. The caller sets
// Resolved, and the Name of the root of a bundle. Info fails with ErrNotFound or ErrTooMany.
func Info(root *os.Root, p string, depth int) (codalab.TargetInfo, error) {
	d := describer{left: maxEntries, depth: depth}
	return d.describe(root, clean(p))
}

// describer describes one target and its descendants.
type describer struct {
	left  int                   // entries
	depth int                   // levels of directories whose entries are described
	in    []*codalab.TargetInfo // the directories that lead to the present entry
}

func (d *describer) describe(root *os.Root, p string) (codalab.TargetInfo, error) {
	info, err := root.Lstat(p)
	if err != nil {
		return codalab.TargetInfo{}, classify(root, p, err)
	}
	out := codalab.TargetInfo{Name: path.Base(p), Size: info.Size(), Perm: int(info.Mode().Perm())}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		out.Type = codalab.TargetFile
	case mode.IsDir():
		out.Type = codalab.TargetDirectory
		if d.depth > 0 {
			err = d.entries(root, p, &out)
		}
	case mode.Type() == fs.ModeSymlink:
		out.Type = codalab.TargetLink
		out.Link, err = root.Readlink(p)
	default:
		err = ErrNotFound
	}
	if err != nil {
		return codalab.TargetInfo{}, classify(root, p, err)
	}
	return out, nil
}

// entries describes a directory's entries, in the order of names. It leaves out entries that
// vanish or may not be read.
func (d *describer) entries(root *os.Root, p string, of *codalab.TargetInfo) error {
	return below(root, p, treewalk.Visitor{
		Entry: d.entry,
		Open: func(dir int, name string) (int, error) {
			fd, err := treewalk.OpenDir(dir, name)
			if err != nil {
				return fd, err
			}
			if n := len(d.in); n > 0 {
				of = &d.in[n-1].Contents[len(d.in[n-1].Contents)-1]
			}
			of.Contents = []codalab.TargetInfo{}
			d.in = append(d.in, of)
			return fd, nil
		},
		Failed: func(_ int, name string, err error) error {
			if !omitted(err) || len(d.in) == 0 || name == "." {
				return &fs.PathError{Op: "read directory", Path: name, Err: err}
			}
			last := d.in[len(d.in)-1]
			last.Contents = last.Contents[:len(last.Contents)-1]
			return nil
		},
		Leave: func(int, string) (bool, error) {
			last := d.in[len(d.in)-1]
			slices.SortFunc(last.Contents, func(a, b codalab.TargetInfo) int { return strings.Compare(a.Name, b.Name) })
			d.in = d.in[:len(d.in)-1]
			return false, nil
		},
	})
}

// omitted reports whether err is that of an entry that has vanished or may not be read.
func omitted(err error) bool { return treewalk.IsGone(err) || errors.Is(err, fs.ErrPermission) }

// entry describes an entry of an open directory, the last one of d.in. enter means that its own entries are described, too.
func (d *describer) entry(dir int, name string) (enter bool, err error) {
	if d.left--; d.left < 0 {
		return false, fmt.Errorf("%w: more than %d", ErrTooMany, maxEntries)
	}
	var st unix.Stat_t
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	out := codalab.TargetInfo{Name: name, Size: st.Size, Perm: int(st.Mode & 0o777)}
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT == unix.S_IFREG:
		out.Type = codalab.TargetFile
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		out.Type, enter = codalab.TargetDirectory, len(d.in) < d.depth
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		out.Type = codalab.TargetLink
		out.Link, err = readlink(dir, name)
	default:
		return false, nil
	}
	switch {
	case err == nil:
		last := d.in[len(d.in)-1]
		last.Contents = append(last.Contents, out)
		return enter, nil
	case omitted(err):
		return false, nil
	}
	return false, &fs.PathError{Op: "stat", Path: name, Err: err}
}

func readlink(dir int, name string) (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, target)
	if err != nil {
		return "", err
	}
	return string(target[:n]), nil
}

// below visits everything below a directory. An entry costs the same at any depth.
func below(root *os.Root, p string, v treewalk.Visitor) error {
	d, err := root.OpenFile(p, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return classify(root, p, err)
	}
	return errors.Join(treewalk.Walk(int(d.Fd()), ".", v), d.Close())
}

// Section opens the file at p and returns length bytes from offset, fewer at the file's end;
// a negative length means all bytes to the end. The caller closes it. It fails with
// ErrNotFound, ErrLink or ErrDirectory.
func Section(root *os.Root, p string, offset, length int64) (io.ReadCloser, error) {
	f, err := openFile(root, clean(p))
	if err != nil {
		return nil, err
	}
	if length < 0 {
		length = max(0, 1<<62-offset)
	}
	return section{io.NewSectionReader(f, offset, length), f}, nil
}

type section struct {
	io.Reader
	io.Closer
}

// Measure adds up the target at p, which counts itself.
func Measure(root *os.Root, p string) (sum codalab.Extent, err error) {
	p = clean(p)
	info, err := root.Lstat(p)
	if err != nil {
		return codalab.Extent{}, classify(root, p, err)
	}
	if !info.IsDir() {
		return codalab.Extent{Bytes: info.Size(), Entries: 1}, nil
	}
	sum = codalab.Extent{Bytes: DirectorySize, Entries: 1}
	err = below(root, p, treewalk.Visitor{
		Entry: func(dir int, name string) (isDir bool, err error) {
			var st unix.Stat_t
			err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
			switch {
			case treewalk.IsGone(err):
				return false, nil
			case err != nil:
				return false, &fs.PathError{Op: "stat", Path: name, Err: err}
			}
			sum.Entries++
			if isDir = st.Mode&unix.S_IFMT == unix.S_IFDIR; isDir {
				sum.Bytes += DirectorySize
			} else {
				sum.Bytes += st.Size
			}
			return isDir, nil
		},
		Failed: func(_ int, name string, err error) error {
			if treewalk.IsGone(err) {
				return nil
			}
			return &fs.PathError{Op: "read directory", Path: name, Err: err}
		},
	})
	if err != nil {
		return codalab.Extent{}, classify(root, p, err)
	}
	return sum, nil
}

// openFile opens a regular file, through links inside root.
func openFile(root *os.Root, p string) (*os.File, error) {
	// O_NONBLOCK: a pipe would block.
	f, err := root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, classify(root, p, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = ErrDirectory
	case !info.Mode().IsRegular():
		err = ErrNotFound
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

// clean makes a path below the root of a target's path. One that leads upwards ends at the
// root.
func clean(p string) string {
	p = path.Clean("/" + p)
	if p == "/" {
		return "."
	}
	return p[1:]
}

// classify turns an error of root into one of this package. os.Root has no error value for a
// link that leads out of it: classify recognizes such an error by two signs. It is none of
// the system's errors but ELOOP, and the path is a link or lies behind one.
func classify(root *os.Root, p string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok && errno != syscall.ELOOP {
		return err
	}
	for at := p; at != "."; at = path.Dir(at) {
		if info, lerr := root.Lstat(at); lerr == nil && info.Mode().Type() == fs.ModeSymlink {
			return fmt.Errorf("%w: %w", ErrLink, err)
		}
	}
	return err
}
