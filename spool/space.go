package spool

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Space is how much room a disk has for who is not root.
type Space struct {
	Free, Total int64 // bytes
	// FreeFiles and Files count what may be made in number; 0 where the disk
	// has no bound on that.
	FreeFiles, Files int64
}

// Space measures the shared disk. A quota of the user's or of a directory does
// not show in it on most disks.
func (d Disk) Space() (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(d.Layout.spool(), &s); err != nil {
		return Space{}, fmt.Errorf("measure the shared disk: statfs %s: %w", d.Layout.spool(), err)
	}
	unit := s.Frsize
	if unit <= 0 {
		unit = s.Bsize
	}
	return Space{
		Free: int64(s.Bavail) * unit, Total: int64(s.Blocks) * unit, //nolint:gosec // no disk is that large
		FreeFiles: int64(s.Ffree), Files: int64(s.Files), //nolint:gosec // as above
	}, nil
}
