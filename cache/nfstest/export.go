package nfstest

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// An export is what the server has: a directory, by file handles. Its methods
// are the procedures of RFC 1813. Each is one step, so that the attributes
// before and after it (weak cache consistency data) are exact. All errors are
// bare syscall.Errno.
type export struct {
	o      Options
	faults *faults // only counts

	mu      sync.Mutex
	most    int // objects, as the limit of open files has it
	objects map[fileID]*object
	root    *object
	used    int64 // bytes in files
}

type fileID struct{ dev, ino uint64 }

// An object is a file, directory or link on the server: what a file handle
// means. The open descriptor keeps its number from being used for another.
type object struct {
	id      fileID
	fd      int // O_PATH; -1 once it is gone
	refs    int
	changes uint64 // tells apart what happens within one tick of the disk's clock
}

// attributes are an object's, with the server's times.
type attributes struct {
	syscall.Stat_t
	changes uint64
}

// wcc are the attributes of a directory before and after a procedure.
type wcc struct{ before, after attributes }

func (a *attributes) isDir() bool { return a.Mode&syscall.S_IFMT == syscall.S_IFDIR }

// same is whether nothing has changed between two answers.
func (a *attributes) same(b *attributes) bool {
	return a.changes == b.changes && a.Ctim == b.Ctim && a.Mtim == b.Mtim && a.Size == b.Size && a.Nlink == b.Nlink &&
		a.Mode == b.Mode && a.Uid == b.Uid && a.Gid == b.Gid
}

func openExport(dir string, o Options, f *faults) (*export, error) {
	e := &export{o: o, faults: f, most: manyFiles() * 3 / 4, objects: map[fileID]*object{}}
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			e.used += info.Size()
		}
		return err
	})
	if err == nil {
		e.root, err = e.find(unix.AT_FDCWD, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", dir, err)
	}
	return e, nil
}

// manyFiles raises the limit of open files as far as it goes, and returns it.
func manyFiles() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 1024
	}
	limit.Cur = min(limit.Max, 1<<20)
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) // Go's runtime has done as much
	return int(limit.Cur)
}

// crowded is whether there are too many objects.
func (e *export) crowded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.objects) > e.most
}

// find returns the object at a name, with one reference more.
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
	o := e.objects[id]
	if o == nil {
		o = &object{id: id, fd: fd}
		e.objects[id] = o
	} else {
		_ = unix.Close(fd)
	}
	o.refs++
	return o, nil
}

// release gives references back.
func (e *export) release(o *object) {
	if o == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(o)
}

func (e *export) drop(o *object) {
	if o.refs--; o.refs == 0 {
		e.bury(o)
	}
}

// bury ends an object that is gone, or that nobody knows any more.
func (e *export) bury(o *object) {
	if o.fd >= 0 {
		_ = unix.Close(o.fd)
		o.fd = -1
		delete(e.objects, o.id)
	}
}

// attr are the attributes of an object now; ESTALE says that it is gone.
func (e *export) attr(o *object) (attributes, error) {
	a := attributes{changes: o.changes}
	if o.fd < 0 {
		return a, syscall.ESTALE
	}
	if err := syscall.Fstat(o.fd, &a.Stat_t); err != nil {
		return a, err
	}
	if a.Nlink == 0 {
		e.bury(o)
		return a, syscall.ESTALE
	}
	for _, t := range []*syscall.Timespec{&a.Atim, &a.Mtim, &a.Ctim} {
		*t = syscall.NsecToTimespec(t.Nano() + int64(e.o.Skew))
	}
	return a, nil
}

// path leads to the object itself, whatever its names are.
func (o *object) path() string { return fmt.Sprintf("/proc/self/fd/%d", o.fd) }

func (e *export) getattr(o *object) (attributes, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.attr(o)
}

// setattr changes what the mask of FUSE's SETATTR names. A time that the client
// gives is kept as given; one that it leaves to the server is the server's.
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
	uid, newUID := in.GetUID()
	gid, newGID := in.GetGID()
	if err == nil && (newUID || newGID) {
		err = unix.Fchownat(o.fd, "", ownerOr(uid, newUID), ownerOr(gid, newGID), unix.AT_EMPTY_PATH)
	}
	if size, ok := in.GetSize(); ok && err == nil {
		err = e.truncate(o, before.Size, int64(size))
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

func ownerOr(id uint32, given bool) int {
	if given {
		return int(id)
	}
	return -1
}

// timeOf is a time for the disk below, whose clock is the local one.
func (e *export) timeOf(in *fuse.SetAttrIn, given, now uint32, sec uint64, nsec uint32) unix.Timespec {
	switch {
	case in.Valid&given == 0:
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	case in.Valid&now != 0:
		e.skewed()
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	default:
		return unix.NsecToTimespec(int64(sec)*1e9 + int64(nsec) - int64(e.o.Skew))
	}
}

func (e *export) skewed() {
	if e.o.Skew != 0 {
		e.faults.count(Skewed)
	}
}

func (e *export) truncate(o *object, from, to int64) error {
	if err := e.grow(to - from); err != nil {
		return err
	}
	return unix.Truncate(o.path(), to)
}

// grow takes bytes of the capacity, or gives them back.
func (e *export) grow(by int64) error {
	if by > 0 && e.o.Capacity > 0 && e.used+by > e.o.Capacity {
		e.faults.count(Full)
		return syscall.ENOSPC
	}
	e.used += by
	return nil
}
