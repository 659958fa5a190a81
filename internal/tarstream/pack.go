package tarstream

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/gzip"
)

// PackOptions says what Pack leaves out.
type PackOptions struct {
	// Exclude is asked for each entry, by its path below the packed
	// directory, slash-separated; an excluded directory is not entered. It
	// may be nil.
	Exclude func(path string, d fs.DirEntry) bool
	// Skipped, if it is set, is told of entries that could not be read for
	// want of permission, which are left out; without it they are errors.
	// Sockets, pipes and devices, and what vanishes, are left out silently.
	Skipped func(path string, err error)
}

// Pack writes the directory dir of root ("." is root itself) to w as a
// gzipped tar stream. Symbolic links stay links, hard links among the packed
// files stay hard links, owners are left out. A file that shrinks while it is
// packed is filled up with zeros, one that grows is cut, so that the stream
// stays whole. When Pack fails or ctx ends, the stream breaks off, which
// every reader notices.
func Pack(ctx context.Context, w io.Writer, root *os.Root, dir string, opts PackOptions) error {
	dir = path.Clean(dir)
	info, err := root.Lstat(dir)
	if err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("pack %s: %w", dir, syscall.ENOTDIR)
	}
	// Level 1 keeps up with a fast network on one core; results are packed
	// once and read seldom.
	zw, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	p := packer{
		ctx: ctx, root: root, dir: dir, opts: opts,
		tw: tar.NewWriter(zw), buf: make([]byte, 128<<10), linked: map[inode]string{},
	}
	if err := p.directory(".", info); err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	if err := errors.Join(p.tw.Close(), zw.Close()); err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	return nil
}

// packer is one call of Pack.
type packer struct {
	ctx    context.Context //nolint:containedctx // lives as long as the call that it came with
	root   *os.Root
	dir    string
	opts   PackOptions
	tw     *tar.Writer
	buf    []byte
	linked map[inode]string // the entry of each file with several names
}

type inode struct{ dev, ino uint64 }

// directory adds a directory and, in the order of their names, what it holds.
// Names are plain bytes here, which io/fs would not take.
func (p *packer) directory(below string, info fs.FileInfo) error {
	d, err := p.root.OpenFile(path.Join(p.dir, below), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err //nolint:wrapcheck // Pack wraps
	}
	entries, err := d.ReadDir(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	if err := p.write(below+"/", "", info); err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := p.entry(path.Join(below, e.Name()), e); err != nil {
			return err
		}
	}
	return nil
}

// entry adds one entry of a directory, or passes it over.
func (p *packer) entry(below string, e fs.DirEntry) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if p.opts.Exclude != nil && p.opts.Exclude(below, e) {
		return nil
	}
	if len(below) > maxName {
		return fmt.Errorf("%w: a path of more than %d bytes", ErrTooLarge, maxName)
	}
	err := p.add(below)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, fs.ErrPermission) && p.opts.Skipped != nil:
		p.opts.Skipped(below, err)
		return nil
	}
	return err
}

func (p *packer) add(below string) error {
	info, err := p.root.Lstat(path.Join(p.dir, below))
	if err != nil {
		return err //nolint:wrapcheck // Pack wraps
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return p.file(below, info)
	case mode.IsDir():
		return p.directory(below, info)
	case mode.Type() == fs.ModeSymlink:
		link, err := p.root.Readlink(path.Join(p.dir, below))
		if err != nil {
			return err //nolint:wrapcheck // Pack wraps
		}
		return p.write(below, link, info)
	}
	return nil
}

func (p *packer) file(below string, info fs.FileInfo) error {
	id, several := severalNames(info)
	if first, ok := p.linked[id]; ok && several {
		return p.tw.WriteHeader(&tar.Header{ //nolint:wrapcheck // Pack wraps
			Typeflag: tar.TypeLink, Name: "./" + below, Linkname: first,
			Mode: int64(info.Mode().Perm()), ModTime: info.ModTime().Truncate(time.Second),
		})
	}
	// Without O_NONBLOCK a pipe that took the file's place would hold us.
	f, err := p.root.OpenFile(path.Join(p.dir, below), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err //nolint:wrapcheck // Pack wraps
	}
	defer f.Close() //nolint:errcheck // only read
	opened, err := f.Stat()
	if err != nil {
		return err //nolint:wrapcheck // Pack wraps
	}
	if !os.SameFile(info, opened) {
		return nil // replaced since we looked
	}
	if err := p.write(below, "", opened); err != nil {
		return err
	}
	if several {
		p.linked[id] = "./" + below
	}
	return p.copy(f, opened.Size())
}

// copy writes exactly size bytes, whatever has become of the file.
func (p *packer) copy(f io.Reader, size int64) error {
	for _, source := range []io.Reader{f, zeros{}} {
		n, err := io.CopyBuffer(p.tw, io.LimitReader(interruptible{p.ctx, source}, size), p.buf)
		if err != nil {
			return err //nolint:wrapcheck // Pack wraps
		}
		size -= n
	}
	return nil
}

func (p *packer) write(below, link string, info fs.FileInfo) error {
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err //nolint:wrapcheck // Pack wraps
	}
	header.Name = "./" + strings.TrimPrefix(below, "./")
	header.Mode = int64(info.Mode().Perm())
	header.ModTime = info.ModTime().Truncate(time.Second) // never a moment that is still to come
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
	header.Format = tar.FormatUnknown // the plainest that holds it
	return p.tw.WriteHeader(header)   //nolint:wrapcheck // Pack wraps
}

// severalNames identifies a file that has more than one name.
func severalNames(info fs.FileInfo) (inode, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink < 2 {
		return inode{}, false
	}
	return inode{st.Dev, st.Ino}, true
}

// interruptible fails when its context has ended. It hides its reader's
// other methods, which would read past us.
type interruptible struct {
	ctx context.Context //nolint:containedctx // lives as long as the call that it came with
	r   io.Reader
}

func (i interruptible) Read(b []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(b) //nolint:wrapcheck // a reader's errors go through as they are
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
