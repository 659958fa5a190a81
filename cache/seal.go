package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/interruptible"
)

// sum holds the digest and the totals of a content.
type sum struct {
	digest  string
	dir     bool
	bytes   int64 // in all files
	files   int64
	entries int64 // files, directories and links
}

// takes returns the bytes that count against the quotas, with 512 for each name.
func (s sum) takes() int64 { return s.bytes + 512*s.entries }

// fewFiles limits the files that are flushed one by one. For more, the whole file system is flushed
// at once (syncfs(2)), which costs one journal commit instead of thousands.
const fewFiles = 64

// seal completes a content: it gives the group its permissions, reads all files back and flushes
// them.
func (c *Cache) seal(ctx context.Context, e entryNames, token string) (sum, error) {
	content := e.content(token)
	info, err := os.Lstat(content)
	if err != nil {
		return sum{}, fmt.Errorf("the fill made nothing: %w", err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return sum{}, errors.New("the fill made neither a file nor a directory")
	}
	if err := c.share(e, token); err != nil {
		return sum{}, err
	}
	s, err := digest(ctx, content, true)
	if err != nil {
		return sum{}, err
	}
	if s.files > fewFiles {
		if err := atomicfile.SyncDisk(content); err != nil {
			return sum{}, err
		}
	}
	return s, errors.Join(atomicfile.SyncDir(e.fillDir(token)), atomicfile.SyncDir(e.dir))
}

// share gives a content the group's permissions. A private content keeps its own, below a directory
// that other users may not enter.
func (c *Cache) share(e entryNames, token string) error {
	if !c.o.Group || e.private {
		return nil
	}
	root, err := os.OpenRoot(e.fillDir(token))
	if err != nil {
		return fmt.Errorf("share it with the group: %w", err)
	}
	err = filepath.WalkDir(e.fillDir(token), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := "." + strings.TrimPrefix(path, e.fillDir(token))
		mode := info.Mode().Perm()
		if d.IsDir() {
			return root.Chmod(name, mode|0o770|fs.ModeSetgid) // so that each member of the group may remove it
		}
		return root.Chmod(name, mode|mode>>3&0o050)
	})
	if err = errors.Join(err, root.Close()); err != nil {
		return fmt.Errorf("share it with the group: %w", err)
	}
	return nil
}

// digest reads a content and returns its digest and totals. The digest of a file is the SHA-256 of
// its bytes. The digest of a directory is the SHA-256 of one line for each entry, in the order of
// names within each directory: type and permissions, size, the path's length and the path, and a
// file's SHA-256 or a link's target. With flush, it flushes what it reads, as long as there are few
// files.
func digest(ctx context.Context, content string, flush bool) (sum, error) {
	d := digester{ctx: ctx, root: content, flush: flush}
	info, err := os.Lstat(content)
	if err != nil {
		return sum{}, fmt.Errorf("read back: %w", err)
	}
	d.group.SetLimit(runtime.GOMAXPROCS(0) + 2)
	d.sum.dir = info.IsDir()
	err = filepath.WalkDir(content, d.visit)
	if err = errors.Join(err, d.group.Wait()); err != nil {
		return sum{}, fmt.Errorf("read back: %w", err)
	}
	if !d.sum.dir {
		d.sum.digest = d.lines[0].content
		return d.sum, nil
	}
	h := sha256.New()
	for _, l := range d.lines {
		_, _ = fmt.Fprintf(h, "%s %d %d %s %s\n", l.mode, l.size, len(l.path), l.path, l.content)
	}
	d.sum.digest = hex.EncodeToString(h.Sum(nil))
	return d.sum, nil
}

// measure returns the bytes of a tree, as sum.takes counts them.
func measure(dir string) (int64, error) {
	d := digester{}
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		d.sum.entries++
		d.sum.bytes += d.bytes(info)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("measure %s: %w", dir, err)
	}
	return d.sum.takes(), nil
}

// digester is one call of digest.
type digester struct {
	ctx   context.Context //nolint:containedctx // lives as long as the call that it came with
	root  string
	flush bool
	group errgroup.Group
	lines []*line
	seen  map[uint64]bool // files with several names
	sum   sum
}

type line struct {
	mode    fs.FileMode
	size    int64
	path    string
	content string
}

func (d *digester) visit(name string, e fs.DirEntry, err error) error {
	if err = errors.Join(err, d.ctx.Err()); err != nil {
		return err
	}
	info, err := e.Info()
	if err != nil {
		return err
	}
	l := &line{mode: info.Mode().Type() | info.Mode().Perm(), path: strings.TrimPrefix(name, d.root)}
	d.lines = append(d.lines, l)
	d.sum.entries++
	d.sum.bytes += d.bytes(info)
	switch {
	case info.IsDir():
		if d.flush && d.sum.files <= fewFiles {
			return atomicfile.SyncDir(name)
		}
	case info.Mode().IsRegular():
		d.sum.files++
		l.size = info.Size()
		flush := d.flush && d.sum.files <= fewFiles
		d.group.Go(func() (err error) {
			l.content, err = d.file(name, l.size, flush)
			return err
		})
	case l.mode&fs.ModeSymlink != 0:
		if l.content, err = os.Readlink(name); err != nil {
			return err
		}
		l.size = int64(len(l.content))
	default:
		return fmt.Errorf("%w: %s is no file, directory or link", ErrDamaged, name)
	}
	return nil
}

// bytes returns the bytes that an entry adds to the total. A file with several names counts once.
func (d *digester) bytes(info fs.FileInfo) int64 {
	if !info.Mode().IsRegular() {
		return 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		if d.seen[st.Ino] {
			return 0
		}
		if d.seen == nil {
			d.seen = map[uint64]bool{}
		}
		d.seen[st.Ino] = true
	}
	return info.Size()
}

// buffers hold pieces of files while they are read.
var buffers = sync.Pool{New: func() any { return new([256 << 10]byte) }} //nolint:gochecknoglobals // a pool is shared by its nature

// file returns the SHA-256 of a file.
func (d *digester) file(name string, size int64, flush bool) (digest string, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrPermission) {
		var restore func() error
		if restore, err = makeReadable(name); err == nil {
			defer func() { err = errors.Join(err, restore()) }()
			f, err = os.Open(name)
		}
	}
	if err != nil {
		return "", err
	}
	buffer, _ := buffers.Get().(*[256 << 10]byte)
	defer buffers.Put(buffer)
	h := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, interruptible.Reader(d.ctx, f), buffer[:])
	if err == nil && n != size {
		err = fmt.Errorf("%w: %s: %d bytes were read of %d", ErrDamaged, name, n, size)
	}
	if err == nil && flush {
		err = f.Sync()
	}
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, f.Close())
}

// makeReadable lets the owner read a file until restore is called.
func makeReadable(name string) (restore func() error, err error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	mode := info.Mode()
	if err := os.Chmod(name, mode|0o400); err != nil {
		return nil, err
	}
	return func() error { return os.Chmod(name, mode) }, nil
}
