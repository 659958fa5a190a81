//go:build unix

package tarstream

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// Flags of os.Root.OpenFile.
const (
	nonBlock      = syscall.O_NONBLOCK
	onlyDirectory = syscall.O_DIRECTORY
)

// severalNames identifies a file that has more than one name.
func severalNames(info fs.FileInfo) (inode, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink < 2 {
		return inode{}, false
	}
	return inode{uint64(st.Dev), st.Ino}, true // Dev is an int32 on macOS
}

// mayRead fails if this process may not read a file.
func mayRead(path string) error {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK, unix.AT_EACCESS)
}
