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

	"github.com/cl-slurm/cl-slurm/internal/interruptible"
)

// PackOptions select the entries that Pack leaves out.
type PackOptions struct {
	// Exclude reports whether to leave an entry out, by its slash-separated path below the
	// packed directory; an excluded directory is not entered. It may be nil.
	Exclude func(path string, d fs.DirEntry) bool
	// Skipped, if it is set, is called for each entry that Pack leaves out because it may not
	// read it; if Skipped is nil, such an entry is an error.
	Skipped func(path string, err error)
	// LeftOut, if it is set, is called for each socket, pipe and device, which Pack always leaves out.
	LeftOut func(path string)
	// Changed, if it is set, is called for each file that another process removed (err is
	// fs.ErrNotExist) or changed (ErrChanged) while it was packed.
	Changed func(path string, err error)
	// Read, if it is set, is called for n more bytes of files; Entry for each entry that begins and is not left out.
	Read  func(n int64)
	Entry func(path string)
}

// ErrChanged means a file that was changed while it was packed.
var ErrChanged = errors.New("changed while it was packed")

// Pack writes the directory dir of root ("." is root itself) to w as a
// gzipped tar stream. Symbolic links stay links, hard links among the packed
// files stay hard links, owners are left out. A file that shrinks while it is
// packed is filled up with zeros, one that grows is cut, so that the stream
// stays whole. If Pack fails or ctx ends, the stream breaks off, which every
// reader notices.
func Pack(ctx context.Context, w io.Writer, root *os.Root, dir string, opts PackOptions) error {
	dir = path.Clean(dir)
	info, err := root.Lstat(dir)
	if err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("pack %s: %w", dir, syscall.ENOTDIR)
	}
	err = write(w, newPacker(ctx, opts), func(p *packer) error { return p.top(location{root: root, path: dir}) })
	if err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	return nil
}

// write writes the archive of the entries that add adds to p.
func write(w io.Writer, p *packer, add func(*packer) error) error {
	zw := &compressor{w: w}
	p.tw = tar.NewWriter(zw)
	err := add(p)
	if err == nil {
		err = p.tw.Close()
	}
	if err == nil {
		err = zw.Close()
	}
	if err != nil {
		zw.abandon()
	}
	return err
}

// CheckPath fails with an ErrTooLarge, which shows the beginning of the path, if the path is too
// long for an entry below the packed directory. Pack and Unpack reject the same paths.
func CheckPath(below string) error {
	const most = maxName - len("./") - len("/")
	if len(below) > most {
		return fmt.Errorf("%w: a path of %d bytes, where %d are the most: %s", ErrTooLarge, len(below), most, printable(below))
	}
	return nil
}

// packer is one call of Pack.
type packer struct {
	ctx    context.Context //nolint:containedctx // of one call
	opts   PackOptions
	tw     *tar.Writer // nil for a packer that only measures
	buf    []byte
	linked map[inode]string // the first entry of each file with several names
	size   Size             // of the added entries
	follow bool             // pack the targets of symbolic links
	above  []fs.FileInfo    // the directories that lead to the present entry, if it follows
}

func newPacker(ctx context.Context, opts PackOptions) *packer {
	return &packer{ctx: ctx, opts: opts, linked: map[inode]string{}}
}

type inode struct{ dev, ino uint64 }

// location is a path below an open directory: its parent, as a rule, so that no file costs a
// walk from the root. Without a directory it is any path of this machine.
type location struct {
	root  *os.Root
	path  string
	depth int // number of open roots above
}

func (at location) in(name string) location {
	return location{at.root, path.Join(at.path, name), at.depth}
}

func (at location) open(flag int) (*os.File, error) {
	// O_NONBLOCK: a pipe in place of the file would block.
	flag |= os.O_RDONLY | nonBlock
	if at.root == nil {
		return os.OpenFile(at.path, flag, 0)
	}
	return at.root.OpenFile(at.path, flag, 0)
}

func (at location) lstat() (fs.FileInfo, error) {
	if at.root == nil {
		return os.Lstat(at.path)
	}
	return at.root.Lstat(at.path)
}

func (at location) readlink() (string, error) {
	if at.root == nil {
		return os.Readlink(at.path)
	}
	return at.root.Readlink(at.path)
}

// top adds a directory whose entries are at the top of the archive.
func (p *packer) top(at location) error {
	d, err := at.open(onlyDirectory)
	if err != nil {
		return err
	}
	return p.directory(d, at, ".")
}

// entry adds one entry of a directory, or leaves it out.
func (p *packer) entry(at location, below string, e fs.DirEntry) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if p.opts.Exclude != nil && p.opts.Exclude(below, e) {
		return nil
	}
	if err := CheckPath(below); err != nil {
		return err
	}
	if p.follow && e.Type() == fs.ModeSymlink {
		info, err := os.Stat(at.path)
		if err != nil {
			return p.skip(at, below, e, err)
		}
		e = fs.FileInfoToDirEntry(info)
	}
	if kind := e.Type(); p.opts.Entry != nil && (kind.IsRegular() || kind.IsDir() || kind == fs.ModeSymlink) {
		p.opts.Entry(below)
	}
	switch kind := e.Type(); {
	case kind.IsRegular() && p.tw == nil:
		return p.measure(at, below, e)
	case kind.IsRegular():
		f, err := at.open(0)
		if err != nil {
			return p.skip(at, below, e, err)
		}
		return errors.Join(p.file(f, below), f.Close())
	case kind.IsDir():
		d, err := at.open(onlyDirectory)
		if err != nil {
			return p.skip(at, below, e, err)
		}
		return p.directory(d, at, below)
	case kind == fs.ModeSymlink:
		link, err := at.readlink()
		if err != nil {
			return p.skip(at, below, e, err)
		}
		info, err := at.lstat()
		if err != nil {
			return p.skip(at, below, e, err)
		}
		return p.write(tar.TypeSymlink, below, link, info)
	case p.opts.LeftOut != nil:
		p.opts.LeftOut(below)
	}
	return nil
}

// skip returns nil if an entry that could not be opened may be left out: it vanished or was
// replaced since its directory was read, or may not be read.
func (p *packer) skip(at location, below string, e fs.DirEntry, err error) error {
	now, gone := at.lstat()
	switch {
	case errors.Is(gone, fs.ErrNotExist), errors.Is(err, syscall.ESTALE), // removed by another client of NFS
		gone == nil && now.Mode().Type() != e.Type() && !p.follow:
		p.changed(below, fs.ErrNotExist)
		return nil
	case errors.Is(err, fs.ErrPermission) && p.opts.Skipped != nil:
		p.opts.Skipped(below, err)
		return nil
	}
	return err
}

// directory adds a directory and its entries in the order of names. It closes d. It does not use
// io/fs, which accepts no name that is not UTF-8.
func (p *packer) directory(d *os.File, at location, below string) error {
	info, err := d.Stat()
	var entries []fs.DirEntry
	if err == nil {
		entries, err = d.ReadDir(-1)
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	if err := p.write(tar.TypeDir, below+"/", "", info); err != nil {
		return err
	}
	if p.follow {
		if slices.ContainsFunc(p.above, func(other fs.FileInfo) bool { return os.SameFile(info, other) }) {
			return fmt.Errorf("%s: a symbolic link leads to a directory above it: %w", at.path, syscall.ELOOP)
		}
		p.above = append(p.above, info)
		defer func() { p.above = p.above[:len(p.above)-1] }()
	}
	if at.root != nil && len(entries) > 0 && (at.depth < maxOpen || strings.Count(at.path, "/") >= maxSteps) {
		// If it fails, paths are only longer.
		if sub, err := at.root.OpenRoot(at.path); err == nil {
			defer sub.Close()
			at = location{root: sub, path: ".", depth: at.depth + 1}
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := p.entry(at.in(e.Name()), path.Join(below, e.Name()), e); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) file(f *os.File, below string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil // replaced since its directory was read
	}
	id, several := severalNames(info)
	if first, ok := p.linked[id]; ok && several {
		return p.write(tar.TypeLink, below, first, info)
	}
	if err := p.write(tar.TypeReg, below, "", info); err != nil {
		return err
	}
	if several {
		p.linked[id] = "./" + below
	}
	if err := p.copy(f, info.Size()); err != nil || p.opts.Changed == nil {
		return err
	}
	if now, err := f.Stat(); err == nil && (now.Size() != info.Size() || !now.ModTime().Equal(info.ModTime())) {
		p.changed(below, ErrChanged)
	}
	return nil
}

func (p *packer) changed(below string, err error) {
	if p.opts.Changed != nil {
		p.opts.Changed(below, err)
	}
}

// pieceSize is the most that is read of a file at a time.
const pieceSize = 128 << 10

// copy writes exactly size bytes, even if the file's size has changed.
func (p *packer) copy(f io.Reader, size int64) error {
	if needs := max(min(size, pieceSize), 1); int64(len(p.buf)) < needs {
		p.buf = make([]byte, needs)
	}
	for _, source := range []io.Reader{f, zeros{}} {
		n, err := io.CopyBuffer(p.tw, io.LimitReader(interruptible.Reader(p.ctx, p.counted(source)), size), p.buf)
		if err != nil {
			return err
		}
		size -= n
	}
	return nil
}

// counted returns a reader of r that calls PackOptions.Read.
func (p *packer) counted(r io.Reader) io.Reader {
	if p.opts.Read == nil {
		return r
	}
	return countedReader{r, p.opts.Read}
}

type countedReader struct {
	io.Reader
	count func(int64)
}

func (c countedReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.count(int64(n))
	return n, err
}

func (p *packer) write(kind byte, below, link string, info fs.FileInfo) error {
	p.size.Entries++
	if kind == tar.TypeReg {
		p.size.Bytes += info.Size()
	}
	if p.tw == nil {
		return nil
	}
	header := tar.Header{
		Typeflag: kind,
		Name:     "./" + strings.TrimPrefix(below, "./"),
		Linkname: link,
		Mode:     int64(info.Mode().Perm()),
		ModTime:  info.ModTime().Truncate(time.Second), // never rounded up to the future
	}
	if kind == tar.TypeReg {
		header.Size = info.Size()
	}
	return p.tw.WriteHeader(&header)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
