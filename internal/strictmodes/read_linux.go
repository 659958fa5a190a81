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
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		if list, err = attribute(path, "system.posix_acl_default"); err != nil {
			return nil, err
		}
		later, err := DefaultWriters(gid, list)
		if err != nil {
			return nil, err
		}
		found = append(found, later...)
	}
	if list, err = attribute(path, nfs4Attribute); err != nil {
		return nil, err
	}
	named, err := NFS4Writers(gid, list)
	return append(found, named...), err
}

// nfs4Attribute is the attribute with the list of a file on a mounted NFSv4 (Linux's fs/nfs/nfs4proc.c).
const nfs4Attribute = "system.nfs4_acl"

// attribute returns an extended attribute of a file; nothing if it has none, or its file system knows no such
// attributes.
func attribute(path, name string) ([]byte, error) {
	return readAttribute(func(value []byte) (int, error) { return unix.Lgetxattr(path, name, value) })
}

// nfs4List returns the list of an open file on an NFSv4.
func nfs4List(f *os.File) ([]byte, error) {
	return readAttribute(func(value []byte) (int, error) { return unix.Fgetxattr(int(f.Fd()), nfs4Attribute, value) })
}

// readAttribute reads an attribute by a system call.
func readAttribute(get func(value []byte) (int, error)) ([]byte, error) {
	for size := 1024; ; size *= 2 {
		value := make([]byte, size)
		n, err := get(value)
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

// owner returns a file's owner and group.
func owner(info fs.FileInfo) (uid, gid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(stat.Uid), int(stat.Gid), true
}
