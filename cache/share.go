package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Grouped reports whether a group shares the cache. Otherwise Want.Private has no effect.
func (c *Cache) Grouped() bool { return c.o.Group }

// MayShare reports whether an entry that is made from an open file need not be private, because
// each member of the group may read that file itself. It returns true in a cache of one user, and
// false on errors.
//
// MayShare checks the permissions of the file and of all directories above it. It assumes that a
// member may belong to other groups, too.
func (c *Cache) MayShare(f *os.File) bool {
	if !c.o.Group {
		return true
	}
	shared, err := os.Stat(c.dir)
	if err != nil {
		return false
	}
	group, err := groupOf(shared)
	if err != nil {
		return false
	}
	self := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	path, err := os.Readlink(self)
	if err != nil || !opens(self, group, 0o4) {
		return false
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if !opens(dir, group, 0o1) {
			return false
		}
		if dir == "/" {
			return true
		}
	}
}

// opens reports whether the permissions at path give each member of a group the right bit, which is
// a bit of the others' permissions.
func opens(path string, group uint32, bit fs.FileMode) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	its, err := groupOf(info)
	if err != nil {
		return false
	}
	// With an access list, the group's bits are only an upper bound (acl(5)).
	_, err = unix.Getxattr(path, "system.posix_acl_access", nil)
	if !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
		return false
	}
	need := bit | bit<<3 // members of the file's group have only the group's bits (path_resolution(7))
	if its == group {
		need = bit << 3
	}
	return info.Mode()&need == need
}

func groupOf(info fs.FileInfo) (uint32, error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New("the system does not know its group")
	}
	return st.Gid, nil
}
