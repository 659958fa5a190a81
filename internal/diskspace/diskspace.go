// Package diskspace measures the free space of disks.
package diskspace

import (
	"os"
	"path/filepath"
)

// Space is the space of a disk for ordinary users. On most disks it does not reflect
// quotas of a user or a directory.
type Space struct {
	Free, Total int64 // bytes
	// FreeFiles and Files are numbers of files; 0 if the disk has no bound.
	FreeFiles, Files int64
}

// Nearest returns path, or the nearest path above it that exists.
func Nearest(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || filepath.Dir(path) == path {
			return path
		}
		path = filepath.Dir(path)
	}
}
