//go:build unix

package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// noFollow refuses to open a symbolic link.
const noFollow = unix.O_NOFOLLOW

// isTaken locks a file, and reports whether another process has locked it; always false on a file system
// without locks.
func isTaken(f *os.File) bool {
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}
