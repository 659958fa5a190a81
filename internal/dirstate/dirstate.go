// Package dirstate tells whether a program has left something in a directory that is empty again, so that the
// directory can be used for the next program.
package dirstate

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// State has all that a program could have changed of an empty directory, except for its times, and for counters that a file
// system gives to later entries: on btrfs, and on tmpfs since Linux 6.6, their offsets (d_off) tell how many entries there were before.
// Equal States are equal by ==.
type State struct {
	mode, uid, gid, flags uint32
	// size and blocks grow with the largest number of entries that the directory has had (ext4).
	size, blocks int64
	// extended has flags and sizes that flags lacks, as XFS has some; zero on a file system without such.
	extended extendedFlags
	// version is a number that the owner can set on an ext4 without checksums; zero where it cannot be read.
	version    uint64
	attributes string
}

// WithoutSize returns a State that is the same for all sizes. The size follows the entries on some file systems, so it can only be
// compared between two States with the same entries.
func (s State) WithoutSize() State {
	s.size, s.blocks = 0, 0
	return s
}

// extendedFlags is struct fsxattr of linux/fs.h.
type extendedFlags struct {
	flags, extentSize, extents, project, copySize uint32
	_                                             [8]byte
}

// These numbers of ioctl(2) have the sizes and the directions of their arguments, which are encoded as in unix.FS_IOC_GETFLAGS. That differs
// between architectures, as for ppc64le.
const (
	getVersion = unix.FS_IOC_GETFLAGS - 'f'<<8 + 'v'<<8       // FS_IOC_GETVERSION, of the same size: a C long
	getXattr   = unix.FS_IOC_GETFLAGS&0xe0000000 | 0x001c581f // FS_IOC_FSGETXATTR
)

// versionOf returns that of an open file.
func versionOf(fd int) (version uint64) {
	//nolint:gosec // the kernel writes a number of at most this size
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getVersion, uintptr(unsafe.Pointer(&version))); errno != 0 {
		return 0
	}
	return version
}

// extendedFlagsOf returns those of an open file.
func extendedFlagsOf(fd int) (f extendedFlags) {
	//nolint:gosec // the kernel writes a struct of this size
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getXattr, uintptr(unsafe.Pointer(&f))); errno != 0 {
		return extendedFlags{}
	}
	f.extents = 0 // a count of its own content
	return f
}

// maxAttributes is more than the attributes of a directory that no program has changed.
const maxAttributes = 4 << 10

// Of returns the State of an open directory. It fails if that has large attributes, or many.
func Of(dir *os.File) (s State, err error) {
	fd := int(dir.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return s, os.NewSyscallError("fstat", err)
	}
	s = State{mode: st.Mode, uid: st.Uid, gid: st.Gid, size: st.Size, blocks: st.Blocks}
	if flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS); err == nil { // not every file system has some
		s.flags = flags
	}
	s.version = versionOf(fd)
	s.extended = extendedFlagsOf(fd)
	names := make([]byte, maxAttributes)
	n, err := unix.Flistxattr(fd, names)
	if errors.Is(err, unix.ENOTSUP) {
		return s, nil
	}
	if err != nil {
		return s, os.NewSyscallError("flistxattr", err)
	}
	value := make([]byte, maxAttributes)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return s, os.NewSyscallError("fgetxattr", err)
		}
		s.attributes += fmt.Sprintf("%q=%q ", name, value[:n])
	}
	return s, nil
}
