package nfstest

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// An export is the server's directory, by file handles. Its methods are the procedures of RFC 1813.
// Each is one step, so that the attributes before and after it (weak cache consistency data) are
// exact. All errors are bare syscall.Errno.
type export struct {
	skew time.Duration

	mu      sync.Mutex
	objects map[fileID]*object
	root    *object
}

type fileID struct{ dev, ino uint64 }

// An object is a file, directory or link on the server, which a file handle names. Its open
// descriptor keeps its inode number from being reused.
type object struct {
	id      fileID
	fd      int    // O_PATH; -1 if the object is gone
	changes uint64 // distinguishes changes within one tick of the disk's clock
}

// attributes belong to an object, with the server's times.
type attributes struct {
	syscall.Stat_t
	changes uint64
}

// wcc has the attributes of a directory before and after a procedure.
type wcc struct{ before, after attributes }

func (a *attributes) isDir() bool { return a.Mode&syscall.S_IFMT == syscall.S_IFDIR }

// same reports whether nothing changed between two answers.
func (a *attributes) same(b *attributes) bool {
	return a.changes == b.changes && a.Ctim == b.Ctim && a.Mtim == b.Mtim && a.Size == b.Size && a.Nlink == b.Nlink && a.Mode == b.Mode
}

func openExport(dir string, skew time.Duration) (*export, error) {
	e := &export{skew: skew, objects: map[fileID]*object{}}
	var err error
	if e.root, err = e.find(unix.AT_FDCWD, dir); err != nil {
		return nil, fmt.Errorf("export %s: %w", dir, err)
	}
	return e, nil
}

// find returns the object at a name.
func (e *export) find(dirfd int, name string) (*object, error) {
	fd, err := unix.Openat(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	id := fileID{st.Dev, st.Ino}
	if o := e.objects[id]; o != nil {
		_ = unix.Close(fd)
		return o, nil
	}
	e.objects[id] = &object{id: id, fd: fd}
	return e.objects[id], nil
}

// attr returns the current attributes of an object. ESTALE means that it is gone.
func (e *export) attr(o *object) (attributes, error) {
	a := attributes{changes: o.changes}
	if o.fd < 0 {
		return a, syscall.ESTALE
	}
	if err := syscall.Fstat(o.fd, &a.Stat_t); err != nil {
		return a, err
	}
	if a.Nlink == 0 {
		_ = unix.Close(o.fd)
		o.fd = -1
		delete(e.objects, o.id)
		return a, syscall.ESTALE
	}
	for _, t := range []*syscall.Timespec{&a.Atim, &a.Mtim, &a.Ctim} {
		*t = syscall.NsecToTimespec(t.Nano() + int64(e.skew))
	}
	return a, nil
}

// path returns a path of the object that does not depend on its names.
func (o *object) path() string { return fmt.Sprintf("/proc/self/fd/%d", o.fd) }

func (e *export) getattr(o *object) (attributes, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.attr(o)
}

// with calls do with an open descriptor of an object, and returns the attributes after it.
func (e *export) with(o *object, flags int, do func(fd int) error) (a attributes, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a, err = e.attr(o); err != nil {
		return a, err
	}
	fd, err := unix.Open(o.path(), flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return a, err
	}
	defer unix.Close(fd) //nolint:errcheck // do has reported its errors
	if err := do(fd); err != nil {
		return a, err
	}
	if flags != unix.O_RDONLY {
		o.changes++
	}
	return e.attr(o)
}

func (e *export) read(o *object, buf []byte, off int64) (n int, err error) {
	_, err = e.with(o, unix.O_RDONLY, func(fd int) error {
		n, err = unix.Pread(fd, buf, off)
		return err
	})
	return n, err
}

func (e *export) write(o *object, data []byte, off int64) (attributes, error) {
	return e.with(o, unix.O_WRONLY, func(fd int) error {
		for len(data) > 0 {
			n, err := unix.Pwrite(fd, data, off)
			if err != nil {
				return err
			}
			data, off = data[n:], off+int64(n)
		}
		return nil
	})
}

// list is READDIR of the whole directory. It also returns the directory's attributes at that time.
func (e *export) list(dir *object) (entries []fuse.DirEntry, a attributes, err error) {
	entries = []fuse.DirEntry{} // nil would mean not known
	a, err = e.with(dir, unix.O_RDONLY, func(fd int) error {
		for buf := make([]byte, 64<<10); ; {
			n, err := unix.Getdents(fd, buf)
			if err != nil || n == 0 {
				return err
			}
			for rest := buf[:n]; len(rest) > 0; {
				var one fuse.DirEntry
				rest = rest[one.Parse(rest):]
				one.Off = uint64(len(entries)) + 1
				entries = append(entries, one)
			}
		}
	})
	return entries, a, err
}

func (e *export) readlink(o *object) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.attr(o); err != nil {
		return nil, err
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(o.fd, "", buf)
	return buf[:max(n, 0)], err
}

func (e *export) statfs(o *object, disk *syscall.Statfs_t) error {
	_, err := e.with(o, unix.O_RDONLY, func(fd int) error { return syscall.Fstatfs(fd, disk) })
	return err
}

// setattr changes the mode, size and times in the mask of FUSE's SETATTR. The server keeps times
// that the client gives, and sets the others by its own clock.
func (e *export) setattr(o *object, in *fuse.SetAttrIn) (attributes, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, err := e.attr(o)
	if err != nil {
		return before, err
	}
	if mode, ok := in.GetMode(); ok {
		err = unix.Chmod(o.path(), mode&0o7777)
	}
	if size, ok := in.GetSize(); ok && err == nil {
		err = unix.Truncate(o.path(), int64(size))
	}
	if err == nil && in.Valid&(fuse.FATTR_ATIME|fuse.FATTR_MTIME) != 0 {
		err = unix.UtimesNanoAt(unix.AT_FDCWD, o.path(), []unix.Timespec{
			e.timeOf(in, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, in.Atime, in.Atimensec),
			e.timeOf(in, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, in.Mtime, in.Mtimensec),
		}, 0)
	}
	if err != nil {
		return before, err
	}
	o.changes++
	return e.attr(o)
}

// timeOf returns a time for the disk below, which has the local clock.
func (e *export) timeOf(in *fuse.SetAttrIn, given, now uint32, sec uint64, nsec uint32) unix.Timespec {
	switch {
	case in.Valid&given == 0:
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	case in.Valid&now != 0:
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	default:
		return unix.NsecToTimespec(int64(sec)*1e9 + int64(nsec) - int64(e.skew))
	}
}

// lookup returns the object of a name, and the directory's attributes.
func (e *export) lookup(dir *object, name string) (o *object, a, dirAttr attributes, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if dirAttr, err = e.attr(dir); err != nil {
		return nil, a, dirAttr, err
	}
	if o, err = e.find(dir.fd, name); err == nil {
		a, err = e.attr(o)
	}
	return o, a, dirAttr, err
}

// leads reports whether a name currently means this object; nil means a missing name.
func (e *export) leads(dir *object, name string, o *object) bool {
	now, _, _, err := e.lookup(dir, name)
	return err == nil && now == o || err != nil && o == nil
}

// changed calls do, which changes the entries of a directory, and returns the directory's
// attributes before and after.
func (e *export) changed(dir *object, do func() error) (w wcc, err error) {
	if w.before, err = e.attr(dir); err != nil {
		return w, err
	}
	if err = do(); err == nil {
		dir.changes++
	}
	if after, gone := e.attr(dir); gone == nil {
		w.after = after
	}
	return w, err
}

// made is a new object.
type made struct {
	object *object
	attr   attributes
	dir    wcc
}

// create calls put to make a name. It refuses an existing one.
func (e *export) create(dir *object, name string, put func(dirfd int) error) (m made, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m.dir, err = e.changed(dir, func() error {
		if err := put(dir.fd); err != nil {
			return err
		}
		m.object, err = e.find(dir.fd, name)
		return err
	})
	if err == nil {
		m.attr, err = e.attr(m.object)
	}
	return m, err
}

// createFile is CREATE: GUARDED if exclusive, and otherwise UNCHECKED, which returns an existing
// file.
func (e *export) createFile(dir *object, name string, mode uint32, exclusive bool) (made, error) {
	for {
		m, err := e.create(dir, name, func(dirfd int) error {
			fd, err := unix.Openat(dirfd, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, mode)
			if err == nil {
				_ = unix.Close(fd)
			}
			return err
		})
		if !errors.Is(err, syscall.EEXIST) || exclusive {
			return m, err
		}
		m.object, m.attr, m.dir.after, err = e.lookup(dir, name)
		m.dir.before = m.dir.after
		if err == nil && m.attr.Mode&syscall.S_IFMT != syscall.S_IFREG {
			return made{dir: m.dir}, syscall.EEXIST
		}
		if !errors.Is(err, syscall.ENOENT) {
			return m, err
		}
	}
}

// link gives an object one more name. It returns the object's attributes even if the name exists
// (RFC 1813, 3.3.15).
func (e *export) link(o, dir *object, name string) (m made, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m.attr, err = e.attr(o); err != nil {
		return m, err
	}
	m.dir, err = e.changed(dir, func() error {
		err := unix.Linkat(unix.AT_FDCWD, o.path(), dir.fd, name, unix.AT_SYMLINK_FOLLOW)
		if err == nil {
			o.changes++
		}
		return err
	})
	if after, gone := e.attr(o); gone == nil {
		m.attr = after
	}
	return m, err
}

// remove is REMOVE, or RMDIR.
func (e *export) remove(dir *object, name string, rmdir bool) (wcc, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	flags := 0
	if rmdir {
		flags = unix.AT_REMOVEDIR
	}
	return e.changed(dir, func() error {
		return e.replacing(dir, name, func() error { return unix.Unlinkat(dir.fd, name, flags) })
	})
}

// rename returns the attributes of both directories.
func (e *export) rename(from *object, old string, to *object, name string) (w, toW wcc, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.attr(to); err != nil {
		return w, toW, err
	}
	w, err = e.changed(from, func() error {
		do := func() error {
			return e.replacing(to, name, func() error { return unix.Renameat(from.fd, old, to.fd, name) })
		}
		if to == from {
			return do()
		}
		toW, err = e.changed(to, do)
		return err
	})
	if to == from {
		toW = w
	}
	return w, toW, err
}

// replacing calls do, which may remove the object at a name.
func (e *export) replacing(dir *object, name string, do func() error) error {
	old, err := e.find(dir.fd, name)
	if err != nil {
		return do()
	}
	if err := do(); err != nil {
		return err
	}
	old.changes++
	_, _ = e.attr(old) // it may be gone
	return nil
}
