package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// copier copies a working directory to another disk: files with their modes, times and holes,
// symbolic links, and hard links among the files, but not pipes, sockets and devices. A file gets
// its name when it is complete and flushed. A later try skips files that an earlier one has copied.
type copier struct {
	// skip reports whether to omit an entry; it may be nil.
	skip func(root *os.Root, name string) bool
	// sync flushes a file or a directory to its disk; nil means fsync(2).
	sync func(*os.File) error
	// temporary is the prefix of the names of incomplete files, which are in the top directory
	// (spool.CopyPrefix).
	temporary string

	files, bytes atomic.Int64 // totals of the copied files

	from, to *os.Root
	serial   atomic.Int64
	linked   map[[2]uint64]string // the first name of each file with several
	again    [][2]string          // further names, each after its first
	dirs     []string
	mu       sync.Mutex
	failure  error // the first of a try
}

const (
	copyAtOnce = 8 // small files cost round trips more than bandwidth
	copyPause  = time.Second
	// longestPath limits the memory for the paths of directories that are nested deeply, and the time to reach
	// them. Programs can use no longer path.
	longestPath = 4095
)

// errTooDeep means a path above longestPath.
var errTooDeep = errors.New("directories are nested too deeply")

// tryFor copies one directory into another. It calls failed for each failure, and tries again until
// ctx ends or long has passed since the first failure.
func (c *copier) tryFor(ctx context.Context, from, to string, long time.Duration, failed func(error)) error {
	var since time.Time
	for {
		err := c.try(ctx, from, to)
		if err == nil {
			return nil
		}
		failed(err)
		if errors.Is(err, errTooDeep) {
			return err
		}
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		if now.Sub(since) >= long {
			return err
		}
		if pause.For(ctx, copyPause) != nil {
			return context.Cause(ctx)
		}
	}
}

func (c *copier) try(ctx context.Context, from, to string) (err error) {
	if c.from, err = os.OpenRoot(from); err != nil {
		return err
	}
	defer func() { _ = c.from.Close() }() // only read
	if c.to, err = os.OpenRoot(to); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.to.Close()) }()
	if err = c.all(ctx); errors.Is(err, fs.ErrPermission) {
		filetree.OpenUp(c.from) // the command may have removed its owner's permissions
		err = c.all(ctx)
	}
	return err
}

// all copies everything once. It continues after an error, and returns the first.
func (c *copier) all(ctx context.Context) error {
	c.linked, c.again, c.dirs, c.failure = map[[2]uint64]string{}, nil, nil, nil
	var group errgroup.Group
	group.SetLimit(copyAtOnce)
	c.directory(ctx, &group, ".")
	_ = group.Wait() // errors are in c.failure
	for _, names := range c.again {
		c.fail(c.hardLink(names[0], names[1]))
	}
	for _, dir := range slices.Backward(c.dirs) { // a write into a directory changes its time
		c.fail(c.copyAttributes(dir))
	}
	for _, dir := range append(c.dirs, ".") {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			c.fail(c.syncDir(dir))
			return nil
		})
	}
	_ = group.Wait() // as above
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return c.failure
}

func (c *copier) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil {
		c.failure = err
	}
}

// flush flushes one file or directory. syncfs(2) would also wait for data of the node's other jobs,
// and report their errors.
func (c *copier) flush(f *os.File) error {
	if c.sync != nil {
		return c.sync(f)
	}
	return f.Sync()
}

func (c *copier) syncDir(dir string) error {
	d, err := c.to.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(c.flush(d), d.Close())
}

func (c *copier) copyAttributes(dir string) error {
	info, err := c.from.Lstat(dir)
	if err != nil {
		return err
	}
	return errors.Join(c.to.Chmod(dir, info.Mode().Perm()|0o700), c.to.Chtimes(dir, info.ModTime(), info.ModTime()))
}

// directory copies the contents of a directory, files in the background.
func (c *copier) directory(ctx context.Context, group *errgroup.Group, dir string) {
	d, err := openDir(c.from, dir)
	if err != nil {
		c.fail(err)
		return
	}
	entries, err := d.ReadDir(-1)
	c.fail(errors.Join(err, d.Close()))
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case ctx.Err() != nil:
			return
		case len(name) > longestPath:
			c.fail(fmt.Errorf("%w, with a path of %d bytes, where %d are the most: %.100s…", errTooDeep, len(name), longestPath, name))
			return
		case c.skip != nil && c.skip(c.from, name):
		default:
			c.entry(ctx, group, name, e)
		}
	}
}

func (c *copier) entry(ctx context.Context, group *errgroup.Group, name string, e fs.DirEntry) {
	info, err := e.Info()
	switch {
	case err != nil:
		c.fail(err)
	case info.IsDir():
		if err := c.mkdir(name); err != nil {
			c.fail(err)
			return
		}
		c.dirs = append(c.dirs, name)
		c.directory(ctx, group, name)
	case info.Mode().Type() == fs.ModeSymlink:
		c.fail(c.symlink(name))
	case info.Mode().IsRegular() && !c.hasOtherName(name, info):
		group.Go(func() error {
			c.fail(c.file(ctx, name, info))
			return nil
		})
	}
}

// mkdir makes a directory. It replaces an output file of that name.
func (c *copier) mkdir(name string) error {
	err := c.to.Mkdir(name, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, err := c.to.Lstat(name); err != nil || info.IsDir() {
		return err
	}
	return errors.Join(c.to.Remove(name), c.to.Mkdir(name, 0o700))
}

// hasOtherName records a further name of a file, which is copied only under its first name.
func (c *copier) hasOtherName(name string, info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink < 2 {
		return false
	}
	id := [2]uint64{st.Dev, st.Ino}
	first, ok := c.linked[id]
	if ok {
		c.again = append(c.again, [2]string{first, name})
	} else {
		c.linked[id] = name
	}
	return ok
}

func (c *copier) symlink(name string) error {
	target, err := c.from.Readlink(name)
	if err != nil {
		return err
	}
	return c.replace(name, func(temporary string) error { return c.to.Symlink(target, temporary) })
}

// hardLink gives a copied file a further name. If the file has that name already, rename would do
// nothing and leave the temporary name.
func (c *copier) hardLink(first, name string) error {
	file, err := c.to.Lstat(first)
	if err != nil {
		return err
	}
	if there, err := c.to.Lstat(name); err == nil && os.SameFile(file, there) {
		return nil
	}
	if err := c.replace(name, func(temporary string) error { return c.to.Link(first, temporary) }); err != nil {
		return err
	}
	c.files.Add(1)
	return nil
}

func (c *copier) replace(name string, create func(temporary string) error) error {
	temporary := c.temporary + "-" + strconv.FormatInt(c.serial.Add(1), 10)
	err := create(temporary)
	if err == nil {
		err = c.to.Rename(temporary, name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copy %s: %w", name, err), ignoreAbsent(c.to.Remove(temporary)))
	}
	return nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// file copies a file, unless an earlier try has done so.
func (c *copier) file(ctx context.Context, name string, info fs.FileInfo) error {
	there, err := c.to.Lstat(name)
	if err == nil && there.Mode().IsRegular() && there.Size() == info.Size() && there.ModTime().Equal(info.ModTime()) {
		return nil
	}
	if err := c.replace(name, func(temporary string) error { return c.copyFile(ctx, name, temporary, info) }); err != nil {
		return err
	}
	c.files.Add(1)
	c.bytes.Add(info.Size())
	return nil
}

// openDir opens a directory. The command may have replaced it with a pipe, which must not block.
func openDir(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
}
