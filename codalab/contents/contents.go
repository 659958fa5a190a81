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

	"github.com/cl-slurm/cl-slurm/codalab"
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
	d := describer{left: maxEntries}
	return d.describe(root, clean(p), depth)
}

type describer struct{ left int }

func (d *describer) describe(root *os.Root, p string, depth int) (codalab.TargetInfo, error) {
	if d.left--; d.left < 0 {
		return codalab.TargetInfo{}, fmt.Errorf("%w: more than %d", ErrTooMany, maxEntries)
	}
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
		if depth > 0 {
			out.Contents, err = d.entries(root, p, depth-1)
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
func (d *describer) entries(root *os.Root, p string, depth int) (out []codalab.TargetInfo, err error) {
	if isDeep(p) {
		err = within(root, p, func(sub *os.Root) error {
			out, err = d.entries(sub, ".", depth)
			return err
		})
		return out, err
	}
	list, err := readDir(root, p, maxEntries)
	if err != nil {
		return nil, err
	}
	out = []codalab.TargetInfo{}
	for _, e := range list {
		info, err := d.describe(root, path.Join(p, e.Name()), depth)
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, fs.ErrPermission):
		case err != nil:
			return nil, err
		default:
			out = append(out, info)
		}
	}
	return out, nil
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

// Size adds up the target at p: files and links with their lengths,
// directories with 4096 each (codalab/worker/file_util.py: get_path_size).
func Size(root *os.Root, p string) (sum int64, err error) {
	p = clean(p)
	info, err := root.Lstat(p)
	if err != nil {
		return 0, classify(root, p, err)
	}
	if !info.IsDir() {
		return info.Size(), nil
	}
	if isDeep(p) {
		err = within(root, p, func(sub *os.Root) error {
			sum, err = Size(sub, ".")
			return err
		})
		return sum, err
	}
	list, err := readDir(root, p, -1)
	if err != nil {
		return 0, err
	}
	sum = DirectorySize
	for _, e := range list {
		n, err := Size(root, path.Join(p, e.Name()))
		if err != nil && !errors.Is(err, ErrNotFound) {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// isDeep reports whether the entries of a directory have to be read within it. A call of an os.Root
// opens all directories of a path, so the time for many files that lie deep would grow with the depth.
func isDeep(p string) bool { return strings.Count(p, "/") >= 32 }

// within calls read with the directory at p.
func within(root *os.Root, p string, read func(sub *os.Root) error) error {
	sub, err := root.OpenRoot(p)
	if err != nil {
		return classify(root, p, err)
	}
	return errors.Join(read(sub), sub.Close())
}

// readDir lists a directory in the order of names, and fails if it has more
// than most entries; a negative number allows any.
func readDir(root *os.Root, p string, most int) ([]fs.DirEntry, error) {
	d, err := root.OpenFile(p, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, classify(root, p, err)
	}
	list, err := d.ReadDir(max(most+1, 0))
	if errors.Is(err, io.EOF) {
		err = nil // an empty directory
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, fmt.Errorf("read directory: %w", err)
	}
	if most >= 0 && len(list) > most {
		return nil, fmt.Errorf("%w: more than %d", ErrTooMany, most)
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
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
