package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// HostError says why this host cannot run a container by a way: something is
// not there, or not allowed. The command has not begun, so another way may be
// tried. Its text is a sentence that says what the site has to do.
type HostError struct{ Err error }

// Error gives the sentence.
func (e *HostError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *HostError) Unwrap() error { return e.Err }

// lacking makes a HostError.
func lacking(format string, args ...any) error {
	return &HostError{Err: fmt.Errorf(format, args...)}
}

// findProgram finds the first of several names on this host.
func findProgram(pkg string, names ...string) (string, error) {
	for _, name := range names {
		if found, err := exec.LookPath(name); err == nil && filepath.IsAbs(found) {
			return found, nil
		}
		// A job's PATH may lack what its node has.
		for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin"} {
			file := filepath.Join(dir, name)
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return file, nil
			}
		}
	}
	return "", lacking("this node lacks the program %s: its package %s has to be installed", names[0], pkg)
}

// checkFuse says plainly why a SIF could not be mounted.
func checkFuse() error {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, fs.ErrNotExist):
		return lacking("this node has no /dev/fuse, which images are mounted by: its kernel module fuse has to be loaded")
	case errors.Is(err, fs.ErrPermission):
		return lacking("this node does not let ordinary users open /dev/fuse, which images are mounted by: its mode has to be 0666")
	default:
		return lacking("this node's /dev/fuse, which images are mounted by, cannot be opened: %w", err)
	}
}

// namespaceError words a refused clone(2).
func namespaceError(err error) error {
	for _, refused := range []error{syscall.EPERM, syscall.EACCES, syscall.ENOSPC, syscall.EINVAL, syscall.EUSERS} {
		if errors.Is(err, refused) {
			return lacking("this node does not let ordinary users make user namespaces: user.max_user_namespaces has to be above 0, "+
				"and kernel.unprivileged_userns_clone, where it exists, 1 (%w)", err)
		}
	}
	return fmt.Errorf("start its init: %w", err)
}

// overlayError words a refused mount of overlayfs over scratch.
func overlayError(scratch string, err error) error {
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		return lacking("this node does not let user namespaces mount overlayfs: that takes Linux 5.11 or RHEL 8.5, "+
			"and no AppArmor or SELinux rule against it (%w)", err)
	}
	if errors.Is(err, syscall.ENODEV) {
		return lacking("this node's kernel has no overlayfs: its module overlay has to be loaded (%w)", err)
	}
	if errors.Is(err, syscall.EINVAL) {
		return lacking("the scratch directory %s is on a file system that overlayfs cannot write to: it has to be on a disk of the node or a tmpfs, "+
			"not on NFS, Lustre, GPFS or another overlay (%w)", scratch, err)
	}
	return fmt.Errorf("mount the root's overlay: %w", err)
}
