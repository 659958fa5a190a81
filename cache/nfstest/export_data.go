package nfstest

import (
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func (e *export) read(o *object, buf []byte, off int64) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fd, err := e.open(o, unix.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	return unix.Pread(fd, buf, off)
}

// open opens the object itself, for one procedure.
func (e *export) open(o *object, flags int) (int, error) {
	if _, err := e.attr(o); err != nil {
		return -1, err
	}
	return unix.Open(o.path(), flags|unix.O_CLOEXEC, 0)
}

// write returns the attributes after it.
func (e *export) write(o *object, data []byte, off int64) (attributes, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.attr(o)
	if err != nil {
		return a, err
	}
	fd, err := unix.Open(o.path(), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return a, err
	}
	defer unix.Close(fd) //nolint:errcheck // what pwrite has taken is there
	if err := e.grow(max(0, off+int64(len(data))-a.Size)); err != nil {
		return a, err
	}
	for len(data) > 0 {
		n, err := unix.Pwrite(fd, data, off)
		if err != nil {
			return a, err
		}
		data, off = data[n:], off+int64(n)
	}
	o.changes++
	return e.attr(o)
}

func (e *export) readlink(o *object) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.attr(o); err != nil {
		return nil, err
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(o.fd, "", buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// statfs fills out with what the disk below has, or with the capacity.
func (e *export) statfs(out *fuse.StatfsOut) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var st syscall.Statfs_t
	if err := syscall.Fstatfs(e.root.fd, &st); err != nil {
		return err
	}
	out.FromStatfsT(&st)
	if e.o.Capacity > 0 {
		free := uint64(max(0, e.o.Capacity-e.used)) / uint64(out.Bsize)
		out.Blocks, out.Bfree, out.Bavail = uint64(e.o.Capacity)/uint64(out.Bsize), free, free
	}
	return nil
}

// list is READDIR, the whole directory, with its attributes at that time.
func (e *export) list(dir *object) ([]fuse.DirEntry, attributes, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.attr(dir)
	if err != nil {
		return nil, a, err
	}
	d, err := os.OpenFile(dir.path(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, a, syscall.EIO
	}
	defer d.Close() //nolint:errcheck // only read
	entries := []fuse.DirEntry{}
	for buf := make([]byte, 64<<10); ; {
		n, err := unix.Getdents(int(d.Fd()), buf)
		if err != nil || n == 0 {
			return entries, a, err
		}
		for rest := buf[:n]; len(rest) > 0; {
			var one fuse.DirEntry
			rest = rest[one.Parse(rest):]
			one.Off = uint64(len(entries)) + 1
			entries = append(entries, one)
		}
	}
}
