// Package diskspace measures how much room a disk has.
package diskspace

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Space is how much room a disk has for ordinary users. A quota of the user's
// or of a directory does not show in it on most disks.
type Space struct {
	Free, Total int64 // bytes
	// FreeFiles and Files are numbers of files; 0 where the disk does not bound
	// them.
	FreeFiles, Files int64
}

// Of measures the disk on which path is, which has to exist (statfs(2)).
func Of(path string) (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Space{}, fmt.Errorf("ask how full the disk of %s is: %w", path, err)
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

// Network returns the name of the network file system that holds path; empty for a
// local one, for one that is not known here, and if path does not exist.
func Network(path string) string {
	var s unix.Statfs_t
	if unix.Statfs(path, &s) != nil {
		return ""
	}
	// statfs(2), and the sources of those that are not in Linux.
	return map[int64]string{
		unix.NFS_SUPER_MAGIC: "NFS", unix.SMB2_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS", unix.AFS_SUPER_MAGIC: "AFS",
		unix.CEPH_SUPER_MAGIC: "CephFS", unix.V9FS_MAGIC: "9p", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x19830326: "BeeGFS",
	}[int64(s.Type)&0xffffffff]
}
