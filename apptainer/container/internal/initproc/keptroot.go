package initproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/dirstate"
)

// writtenDir, in a keeper's private directory, has UpperDir and workDir of the overlay that is the root of its containers. The keeper's
// own UpperDir is a layer of it.
const writtenDir = "written"

// keptRoot is an overlay that is the root of a keeper's containers, one after another. The kernel makes eight files to mount an overlay,
// and the worker would remove them, which takes longer than a small command runs. So a container gets the root of the last one if that
// has left it as it was, and otherwise a new one. Most commands write only to their binds.
//
// Files of the container that are the same for all are in a layer between the image and the overlay. A container may change them, and
// changes a copy.
//
// Disk file systems take longer to make and to free a directory than to rename it. So the mount points of a container stay until the next
// container begins, and then get the names that this one needs.
type keptRoot struct {
	mounted bool
	// empty describes its top directory before the first container, and unchanged describes it with the mountPoints, before the command of
	// the present container. Its size may be another one for each: it follows the entries on XFS, btrfs and tmpfs.
	empty, unchanged dirstate.State
	// reached is set if the present container reaches other processes (container.ReachesOthers).
	reached bool
	// mountPoints are names of directories in the top directory that the keeper has made for the present container or, between two
	// containers, for the last one. The image has nothing of these names. No command reaches the directories, because binds cover them.
	mountPoints []string
}

// makeLayer makes the keeper's UpperDir that layer. An overlay copies the directories of the image there, with their attributes.
func (k *keeper) makeLayer() error {
	if err := k.root.MountOverlay(); err != nil {
		return err
	}
	for _, dir := range OwnMounts() {
		if err := makeRealDir(dir); err != nil {
			return err
		}
	}
	if err := k.root.WriteFiles(); err != nil {
		return err
	}
	if err := unix.Unmount(RootDir, 0); err != nil {
		return fmt.Errorf("unmount the root's overlay: %w", err)
	}
	return nil
}

// readyRoot mounts the root for the next container, in the mount namespace of this process.
func (k *keeper) readyRoot() error {
	if k.kept.mounted {
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, RootDir, nil, 0); err != nil { // as that of a new one
			return fmt.Errorf("make its root: %w", err)
		}
		return nil
	}
	for _, dir := range []string{writtenDir, filepath.Join(writtenDir, UpperDir), filepath.Join(writtenDir, workDir)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make its root: %w", err)
		}
	}
	if err := k.root.mountOverlay(UpperDir+":"+LowerDir, writtenDir); err != nil {
		return err
	}
	var err error
	if k.kept.empty, err = stateOfUpper(); err != nil {
		return fmt.Errorf("make its root: %w", err)
	}
	k.kept.mounted = true
	return nil
}

// stateOfUpper describes the overlay's upper directory, which is the root's top directory.
func stateOfUpper() (s dirstate.State, err error) {
	upper, err := os.Open(filepath.Join(writtenDir, UpperDir))
	if err != nil {
		return s, err
	}
	s, err = dirstate.Of(upper)
	return s, errors.Join(err, upper.Close())
}

// mostKept limits keptRoot.mountPoints. A directory of some file systems stays as large as it once was, and later containers could see
// that. So few names, of at most 255 bytes each, do not need a second block.
const mostKept = 4

// makeMountPoints makes the first mount points of a container that are directories directly in the root. It renames those of the last
// container, and removes the ones that are left of them. MakeTargets makes the other mount points, also where a call fails here.
func (k *keptRoot) makeMountPoints(binds []container.Bind) error {
	root, err := openRoot()
	if err != nil {
		return fmt.Errorf("make its mount points: %w", err)
	}
	defer func() { _ = unix.Close(root) }()
	spare := k.mountPoints
	k.mountPoints = nil
	for _, b := range binds {
		if len(k.mountPoints) == mostKept {
			break
		}
		name := path.Base(b.Target)
		if path.Clean(b.Target) != "/"+name {
			continue
		}
		if info, err := os.Stat(b.Source); err != nil || !info.IsDir() {
			continue
		}
		// No call follows a link or replaces something of the image.
		if i := slices.Index(spare, name); i >= 0 {
			spare = slices.Delete(spare, i, i+1)
		} else if len(spare) > 0 && unix.Renameat2(root, spare[0], root, name, unix.RENAME_NOREPLACE) == nil {
			spare = spare[1:]
		} else if unix.Mkdirat(root, name, 0o755) != nil {
			continue
		}
		k.mountPoints = append(k.mountPoints, name)
	}
	for _, name := range spare { // the names tell of another bundle
		if err := unix.Unlinkat(root, name, unix.AT_REMOVEDIR); err != nil {
			return fmt.Errorf("remove the mount points of the last container: %w", err)
		}
	}
	if k.unchanged, err = stateOfUpper(); err != nil {
		return fmt.Errorf("make its mount points: %w", err)
	}
	return nil
}

// openRoot opens the root for calls that take names in it.
func openRoot() (int, error) {
	fd, err := unix.Open(RootDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: RootDir, Err: err}
	}
	return fd, nil
}

// leaveRoot is called when all processes of a container have ended. A root that the container has changed moves to its own
// directory, so that the caller measures and removes it. If that fails, readyRoot fails, and the next container has an init of its own.
func (k *keeper) leaveRoot(p *Process) {
	if !k.kept.mounted || k.isUnchanged() {
		return
	}
	k.kept.mounted, k.kept.mountPoints = false, nil
	if dir, err := p.ownDir(); err == nil && unix.Unmount(RootDir, unix.MNT_DETACH) == nil {
		_ = os.Rename(writtenDir, filepath.Join(dir, writtenDir))
	}
}

// isUnchanged reports whether the root is as it was before the container, except for mountPoints, which are empty. It removes the other
// mount points of the container.
//
// It reads the overlay's upper directory, and so takes no longer for a large image: every change is an entry there, or an attribute of the
// directory itself. What the container has removed of the image is a whiteout, a character device, there (fs/overlayfs/dir.c:
// ovl_do_remove), and what it has changed is a copy, with the directories above it (fs/overlayfs/copy_up.c: ovl_copy_up_flags). The mount
// options, such as userxattr, only decide where the kernel keeps its notes about an entry. They are no matter here, because an entry of a
// name that a layer below has is always a change.
//
// A process of the host to which the container may have given a directory of its root could change the root later.
func (k *keeper) isUnchanged() bool {
	if k.kept.reached {
		return false
	}
	upper, err := os.Open(filepath.Join(writtenDir, UpperDir))
	if err != nil {
		return false
	}
	defer func() { _ = upper.Close() }() // it was only read
	names, err := upper.Readdirnames(mostMountPoints + 1)
	if err != nil && !errors.Is(err, io.EOF) { // EOF: it is empty
		return false
	}
	// The overlay has to know of what goes, so this must not be done in the upper directory.
	root, err := openRoot()
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(root) }()
	most := mostMountPoints
	for _, name := range names {
		if most--; most < 0 {
			return false
		}
		empty := false
		if slices.Contains(k.kept.mountPoints, name) {
			empty = removeInside(root, name, &most)
		} else if isNew(name) {
			empty = removeEmpty(root, name, &most)
		}
		if !empty {
			return false
		}
	}
	now, err := dirstate.Of(upper)
	return err == nil && now == k.kept.unchanged && now.WithoutSize() == k.kept.empty.WithoutSize()
}

// isNew reports whether no layer below has an entry of this name in its top directory.
func isNew(name string) bool {
	for _, layer := range []string{UpperDir, LowerDir} {
		var st unix.Stat_t
		if !errors.Is(unix.Lstat(filepath.Join(layer, name), &st), unix.ENOENT) {
			return false
		}
	}
	return true
}

// mostMountPoints limits the entries that isUnchanged looks at.
const mostMountPoints = 64

// removeEmpty removes an entry of a directory that takes no room: an empty file, or a directory with only such entries. It removes at most
// so many entries of directories, follows no link, and reports whether all are removed.
func removeEmpty(dir int, name string, most *int) bool {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return st.Size == 0 && st.Blocks == 0 && st.Nlink == 1 && unix.Unlinkat(dir, name, 0) == nil
	case unix.S_IFDIR:
		return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) == nil || removeInside(dir, name, most) && unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) == nil
	default:
		return false
	}
}

// removeInside is removeEmpty for all entries of a directory.
func removeInside(dir int, name string, most *int) bool {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	inside := os.NewFile(uintptr(fd), name)
	defer func() { _ = inside.Close() }() // it was only read
	names, err := inside.Readdirnames(*most + 1)
	if err != nil && !errors.Is(err, io.EOF) { // EOF: it is empty
		return false
	}
	for _, n := range names {
		if *most--; *most < 0 || !removeEmpty(fd, n, most) {
			return false
		}
	}
	return true
}
