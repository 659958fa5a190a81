package diskspace

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

// Of measures the disk on which path is, which has to exist (statfs(2)).
func Of(path string) (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Space{}, fmt.Errorf("measure the disk of %s: %w", path, err)
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

// Network returns the file system's name if other hosts may have mounted it, too. It is
// empty for a local or unknown file system, and if path does not exist. Every FUSE file
// system counts as shared, because sshfs cannot be distinguished from a local one.
func Network(path string) string {
	if name := networks()[magic(path)]; name != "" {
		return name
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	return networkOf(string(mountinfo), path)
}

// networkOf returns the name of a network file system whose type as a number is not published.
func networkOf(mountinfo, path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	if at, ok := procstat.MountAt(procstat.Mounts(mountinfo), path); ok && at.Type == "wekafs" {
		return "WekaFS"
	}
	return ""
}

// InMemory reports whether the file system that holds path is gone when the host restarts.
func InMemory(path string) bool {
	kind := magic(path)
	return kind == unix.TMPFS_MAGIC || kind == unix.RAMFS_MAGIC
}

// magic returns the type of the file system that holds path; 0 if path does not exist.
func magic(path string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(path, &s) != nil {
		return 0
	}
	return int64(s.Type) & 0xffffffff
}

// networks maps the types of network and cluster file systems to their names (statfs(2);
// coreutils' stat.c: human_fstype lists those that are not in Linux).
func networks() map[int64]string {
	return map[int64]string{
		unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS",
		unix.AFS_SUPER_MAGIC: "AFS", unix.AFS_FS_MAGIC: "AFS", unix.CODA_SUPER_MAGIC: "Coda", unix.CEPH_SUPER_MAGIC: "CephFS",
		unix.V9FS_MAGIC: "9p", unix.OCFS2_SUPER_MAGIC: "OCFS2", unix.FUSE_SUPER_MAGIC: "FUSE", 0x01161970: "GFS2",
		0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x19830326: "BeeGFS", 0xaad7aaea: "PanFS", 0x20030528: "OrangeFS",
		0xbeefdead: "StorNext", 0x013111a8: "IBRIX",
	}
}
