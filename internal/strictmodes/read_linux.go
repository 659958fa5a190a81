package strictmodes

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// read reads one name. inSticky is set if its directory is sticky.
func read(path string, inSticky bool) (Step, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Step{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Step{}, &fs.PathError{Op: "lstat", Path: path, Err: errors.ErrUnsupported}
	}
	s := Step{Path: path, Mode: info.Mode(), UID: int(stat.Uid), InSticky: inSticky}
	if info.Mode()&fs.ModeSymlink != 0 {
		return s, nil
	}
	s.Writers, err = writersOf(path, info, int(stat.Gid))
	if err != nil {
		return s, &fs.PathError{Op: "read the access control list of", Path: path, Err: err}
	}
	return s, nil
}

// writersOf returns who may write to a file or directory.
func writersOf(path string, info fs.FileInfo, gid int) ([]Writer, error) {
	list, err := attribute(path, "system.posix_acl_access")
	if err != nil {
		return nil, err
	}
	found, err := Writers(info.Mode(), gid, list)
	if err != nil || !info.IsDir() {
		return found, err
	}
	if list, err = attribute(path, "system.posix_acl_default"); err != nil {
		return nil, err
	}
	later, err := DefaultWriters(gid, list)
	if err != nil {
		return nil, err
	}
	if list, err = attribute(path, "system.nfs4_acl"); err != nil || len(list) == 0 {
		return append(found, later...), err
	}
	named, err := NamedWriters(list)
	return append(append(found, later...), named...), err
}

// attribute returns an extended attribute of a file; nothing if it has none, or its file system knows no such
// attributes.
func attribute(path, name string) ([]byte, error) {
	for size := 1024; ; size *= 2 {
		value := make([]byte, size)
		n, err := unix.Lgetxattr(path, name, value)
		switch {
		case err == nil:
			return value[:n], nil
		case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
			return nil, nil // nothing that this account can read, and the mode has been judged
		case !errors.Is(err, unix.ERANGE) || size > 1<<20:
			return nil, err
		}
	}
}

// unmappedOwner returns the id by which the kernel shows root's files in this process's user namespace, if that does not
// have root (user_namespaces(7): Unmapped user and group IDs).
func unmappedOwner() (id int, ok bool) {
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || hasRoot(string(ids)) {
		return 0, false
	}
	text, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return 0, false
	}
	id, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return id, err == nil
}

// hasRoot reports whether a text of /proc/PID/uid_map has the root of the namespace outside.
func hasRoot(ids string) bool {
	for line := range strings.Lines(ids) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[1] == "0" {
			return true
		}
	}
	return false
}

// owner returns a file's owner.
func owner(info fs.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
