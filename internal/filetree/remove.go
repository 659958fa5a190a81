package filetree

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/subids"
	"github.com/cl-slurm/cl-slurm/internal/treewalk"
)

// remover removes a tree. It gives the owner all permissions on directories where that is necessary.
type remover struct {
	failed  error // the first failure
	foreign bool  // a directory belongs to one of the user's subordinate ids
	removed int64
	tried   int64 // the value of removed when a directory was found full after its entries had been removed
}

// all removes an entry of an open directory and everything below it.
func (r *remover) all(dir int, name string) error {
	enter, err := r.entry(dir, name)
	if err != nil || !enter {
		return errors.Join(err, r.failed)
	}
	err = treewalk.Walk(dir, name, treewalk.Visitor{Entry: r.entry, Open: r.open, Failed: r.fail, Leave: r.leave})
	return errors.Join(r.failed, err)
}

// entry removes an entry, unless it is a directory that is not empty.
func (r *remover) entry(dir int, name string) (enter bool, err error) {
	err = unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EACCES) && openDir(dir) {
		err = unix.Unlinkat(dir, name, 0)
	}
	switch {
	case err == nil:
		r.removed++
		return false, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return true, nil // if it is no directory, open fails
	}
	return false, r.fail(dir, name, err)
}

// open opens a directory. It gives its owner all permissions if it is closed.
func (r *remover) open(dir int, name string) (fd int, err error) {
	fd, err = treewalk.OpenDir(dir, name)
	if errors.Is(err, unix.EACCES) && treewalk.Chmod(dir, name, 0o700) == nil {
		return treewalk.OpenDir(dir, name)
	}
	return fd, err
}

// openDir gives its owner all permissions on an open directory.
func openDir(dir int) bool {
	var st unix.Stat_t
	return dir != unix.AT_FDCWD && unix.Fstat(dir, &st) == nil && unix.Fchmod(dir, st.Mode&0o777|0o700) == nil
}

// fail keeps the first failure, and lets the walk go on.
func (r *remover) fail(dir int, name string, err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) { // why could it not be removed?
		err = unix.Unlinkat(dir, name, 0)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
	}
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		r.foreign = r.foreign || subids.IsForeignID(st.Uid)
	}
	if r.failed == nil {
		r.failed = &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// leave removes an emptied directory. Some file systems leave names out of a listing during which other names are
// removed, so a directory that is not empty is listed again, as long as that leads on.
func (r *remover) leave(dir int, name string) (again bool, err error) {
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.EACCES) && openDir(dir) {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	switch {
	case err == nil:
		r.removed++
		return false, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case errors.Is(err, unix.ENOTEMPTY) && r.removed > r.tried:
		r.tried = r.removed
		return true, nil
	}
	return false, r.fail(dir, name, err)
}
