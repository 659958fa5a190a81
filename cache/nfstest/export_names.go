package nfstest

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// lookup returns what a name means, and the directory's attributes.
func (e *export) lookup(dir *object, name string) (o *object, a, dirAttr attributes, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if dirAttr, err = e.attr(dir); err != nil {
		return nil, a, dirAttr, err
	}
	if o, err = e.find(dir.fd, name); err != nil {
		return nil, a, dirAttr, err
	}
	if a, err = e.attr(o); err != nil {
		e.drop(o)
		return nil, a, dirAttr, err
	}
	return o, a, dirAttr, nil
}

// leads is whether a name means this object now; nil stands for none.
func (e *export) leads(dir *object, name string, o *object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	var st unix.Stat_t
	if dir.fd < 0 || unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return o == nil
	}
	return o != nil && o.fd >= 0 && o.id == fileID{st.Dev, st.Ino}
}

// changed does what changes the entries of a directory, and returns its
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

// made is a new object, with a reference that is the caller's.
type made struct {
	object *object
	attr   attributes
	dir    wcc
}

// create has put make a name, for an owner. It refuses one that exists.
func (e *export) create(dir *object, name string, owner unix.Ucred, put func(dirfd int) error) (m made, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m.dir, err = e.changed(dir, func() error {
		if err := put(dir.fd); err != nil {
			return err
		}
		e.skewed()
		gid := int(owner.Gid)
		var st unix.Stat_t
		if unix.Fstat(dir.fd, &st) == nil && st.Mode&unix.S_ISGID != 0 {
			gid = -1 // it is the directory's already
		}
		if err := unix.Fchownat(dir.fd, name, int(owner.Uid), gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
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

// link gives an object one more name. It returns the object's attributes also
// when the name exists (RFC 1813, 3.3.15).
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

// replacing does what may end what a name means now.
func (e *export) replacing(dir *object, name string, do func() error) error {
	old, err := e.find(dir.fd, name)
	if err != nil {
		return do()
	}
	defer e.drop(old)
	var st syscall.Stat_t
	if err := do(); err != nil {
		return err
	}
	old.changes++
	if syscall.Fstat(old.fd, &st) == nil && st.Nlink == 0 {
		if st.Mode&syscall.S_IFMT == syscall.S_IFREG {
			e.used -= st.Size
		}
		e.bury(old)
	}
	return nil
}

// createFile is CREATE, GUARDED when exclusive and UNCHECKED else: then a file
// that exists is the answer too.
func (e *export) createFile(dir *object, name string, mode uint32, exclusive bool, owner unix.Ucred) (made, error) {
	for {
		m, err := e.create(dir, name, owner, func(dirfd int) error {
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
			e.release(m.object)
			return made{dir: m.dir}, syscall.EEXIST
		}
		if !errors.Is(err, syscall.ENOENT) {
			return m, err
		}
	}
}
