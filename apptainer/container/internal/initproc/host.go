package initproc

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/privatenet"
	"github.com/cl-slurm/cl-slurm/internal/smallfile"
)

// FindProgram returns the path of the first of several programs that this host has.
func FindProgram(pkg string, names ...string) (string, error) {
	for _, name := range names {
		if found, err := exec.LookPath(name); err == nil && filepath.IsAbs(found) {
			return found, nil
		}
		// The PATH of a job may be shorter than that of its node.
		for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin"} {
			file := filepath.Join(dir, name)
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return file, nil
			}
		}
	}
	return "", container.HostErrorf("this node lacks the program %s: its package %s has to be installed", names[0], pkg)
}

// FindSquashfuse returns the path of the program that mounts images.
func FindSquashfuse() (string, error) {
	return FindProgram("squashfuse", "squashfuse_ll", "squashfuse")
}

// FindBubblewrap returns the path of bubblewrap.
func FindBubblewrap() (string, error) { return FindProgram("bubblewrap", "bwrap") }

// FindUnsquashfs returns the path of the program that unpacks images.
func FindUnsquashfs() (string, error) { return FindProgram("squashfs-tools", "unsquashfs") }

// FindForwarder returns the path of a program that gives containers a private network, if this user can use it.
func FindForwarder() (string, error) {
	for _, name := range privatenet.Programs() {
		if program, err := FindProgram(name, name); err == nil {
			return program, checkDevice("/dev/net/tun", "gives containers a network", "tun")
		}
	}
	return "", container.HostErrorf("this node has neither the program slirp4netns nor pasta (package passt), one of which gives containers a network")
}

// CheckFuse returns an error if this user cannot open /dev/fuse.
func CheckFuse() error { return checkDevice("/dev/fuse", "mounts images", "fuse") }

// checkDevice returns an error if this user cannot open a device, which has this use and is of this kernel module.
func checkDevice(device, use, module string) error {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return unix.Close(fd)
	case InPod():
		return container.HostErrorf("this pod cannot open %s, which %s: a device plugin of its node has to offer it, and the pod to ask for it in resources.limits (%w)", device, use, err)
	case errors.Is(err, fs.ErrNotExist):
		return container.HostErrorf("this node has no %s, which %s: its kernel module %s has to be loaded", device, use, module)
	case errors.Is(err, fs.ErrPermission):
		return container.HostErrorf("this node does not let ordinary users open %s, which %s: its mode has to be 0666", device, use)
	default:
		return container.HostErrorf("this node's %s, which %s, cannot be opened: %w", device, use, err)
	}
}

// CheckNamespaces returns an error if a setting of the kernel forbids user namespaces. They may
// also be forbidden by other means.
func CheckNamespaces() error {
	if NamespacesForbidden() || isZero("/proc/sys/kernel/unprivileged_userns_clone") {
		return kernelRefusal(syscall.EPERM)
	}
	return nil
}

// NamespacesForbidden reports whether the kernel forbids user namespaces even to programs with
// privileges.
func NamespacesForbidden() bool { return isZero("/proc/sys/user/max_user_namespaces") }

func isZero(file string) bool {
	text, err := smallfile.Read(file)
	return err == nil && strings.TrimSpace(string(text)) == "0"
}

// namespaceError describes the failure of a process to start in a user namespace. It returns a
// HostError if clone(2) was refused.
func namespaceError(err error) error {
	if cause := confinement(err); cause != nil {
		return cause
	}
	for _, refused := range []error{syscall.EPERM, syscall.EACCES, syscall.ENOSPC, syscall.EINVAL, syscall.EUSERS} {
		if errors.Is(err, refused) {
			return kernelRefusal(err)
		}
	}
	return err
}

// kernelRefusal returns the error of a kernel whose settings forbid user namespaces.
func kernelRefusal(err error) error {
	return container.HostErrorf("this node does not let ordinary users make user namespaces: user.max_user_namespaces has to be above 0, "+
		"and kernel.unprivileged_userns_clone, where it exists, 1 (%w)", err)
}
