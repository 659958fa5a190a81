// Package diskspace measures how much room a disk has.
package diskspace

import (
	"os"
	"path/filepath"
)

// Space is how much room a disk has for ordinary users. A quota of the user's
// or of a directory does not show in it on most disks.
type Space struct {
	Free, Total int64 // bytes
	// FreeFiles and Files are numbers of files; 0 where the disk does not bound
	// them.
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
