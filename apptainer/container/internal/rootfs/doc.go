// Package rootfs puts a container's root file system together, in the init of the container.
//
// The init works in its scratch directory:
//
//	lower/  the image: squashfuse mounts the SIF's partition here
//	upper/  what the command changes of it
//	work/   overlayfs's own
//	root/   the two together, the container's root; or the unpacked image
//	shm/    a tmpfs, /dev/shm inside
//	pin/    mounts of files whose paths other users could change
//
// Where a node lets no ordinary user mount the image, or an overlay over it, unsquashfs unpacks the
// image to root/ for one run. That takes seconds and room on the disk.
package rootfs

// Directories in the scratch directory, which is the init's working directory.
const (
	LowerDir = "lower"
	upperDir = "upper"
	workDir  = "work"
	RootDir  = "root"
	ShmDir   = "shm"
	pinDir   = "pin"
)

// UpperDir is the directory for what the command changes, where a runtime has its own overlay.
const UpperDir = upperDir
