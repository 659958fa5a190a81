package container

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

// The least room of a scratch. With less, a command could hardly begin, and
// could not write.
const (
	leastScratchBytes = 1 << 20
	leastScratchFiles = 64
)

// CheckScratch returns an error if the scratch at dir is too full for a container. It does not notice a
// user's quota.
func CheckScratch(dir string) error {
	disk, err := diskspace.Of(dir)
	switch {
	case err != nil:
		return err
	case disk.Total > 0 && disk.Free < leastScratchBytes:
		return fmt.Errorf("the disk of %s is full: it has %d KiB free", dir, disk.Free>>10)
	case disk.Files > 0 && disk.FreeFiles < leastScratchFiles:
		return fmt.Errorf("the disk of %s is full: it can have %d more files", dir, disk.FreeFiles)
	}
	return nil
}

// IsNoexec reports whether no file in a directory can be executed, because its file system is
// mounted noexec.
func IsNoexec(dir string) bool {
	var disk unix.Statfs_t
	return unix.Statfs(dir, &disk) == nil && disk.Flags&unix.ST_NOEXEC != 0
}
