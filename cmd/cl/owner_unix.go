//go:build !windows

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// ownedByMe reports whether a file belongs to the user of this process.
func ownedByMe(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
