package initproc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
)

// SecureBinds returns the binds, with the sources of exact ones mounted in the init's own mount
// namespace, so that nobody outside can redirect them. A plain init only checks the sources, which
// Apptainer opens soon after.
func (r *Root) SecureBinds() ([]container.Bind, error) {
	binds := slices.Clone(r.Binds)
	if r.Process.Plain {
		return binds, CheckExact(binds)
	}
	for i, b := range binds {
		if !b.Exact {
			continue
		}
		f, err := openExact(b.Source)
		if err != nil {
			return nil, err
		}
		binds[i].Source, err = r.secureFile(f, strconv.Itoa(i))
		_ = f.Close() // the mount keeps it
		if err != nil {
			return nil, err
		}
	}
	return binds, nil
}

// CheckExact refuses exact binds with a symbolic link in their sources' paths.
func CheckExact(binds []container.Bind) error {
	for _, b := range binds {
		if !b.Exact {
			continue
		}
		f, err := openExact(b.Source)
		if err != nil {
			return err
		}
		_ = f.Close()
	}
	return nil
}

// openExact opens a path without symbolic links. It opens for reading, which makes an automounter
// mount the path, and does not block on a pipe.
func openExact(source string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, source, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ELOOP) {
		return nil, container.RequestErrorf("bind %s: there is a symbolic link in its path now", source)
	}
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", source, err)
	}
	return os.NewFile(uintptr(fd), source), nil
}

// secureFile mounts an open file or directory under a name in secureDir, and returns the path.
func (r *Root) secureFile(f *os.File, name string) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("bind: %w", err)
	}
	dir, err := r.Process.ownDir()
	if err != nil {
		return "", err
	}
	at := filepath.Join(dir, secureDir, name)
	if err := makeMountPoint(at, info.IsDir(), 0o700); err != nil {
		return "", fmt.Errorf("make a mount point: %w", err)
	}
	if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return "", fmt.Errorf("bind %s: %w", f.Name(), err)
	}
	return at, nil
}

// MakeMountPoint makes a directory, or an empty file, and the directories above it.
func MakeMountPoint(at string, directory bool) error { return makeMountPoint(at, directory, 0o755) }

// makeMountPoint makes a directory, or an empty file, and the directories above it.
func makeMountPoint(at string, directory bool, mode os.FileMode) error {
	if directory {
		return os.MkdirAll(at, mode)
	}
	if err := os.MkdirAll(filepath.Dir(at), mode); err != nil {
		return err
	}
	if err := unix.Mknod(at, unix.S_IFREG|uint32(mode&0o666), 0); err != nil {
		return &fs.PathError{Op: "mknod", Path: at, Err: err}
	}
	return nil
}

// MakeTargets makes the mount points of binds in the root and returns the binds with the links in
// their targets resolved. The first n binds are the caller's. Links in the image must not lead one
// of those into another, because a mount point there would be made on the host.
func MakeTargets(binds []container.Bind, n int) ([]container.Bind, error) {
	taken := OwnMounts()
	for _, dir := range taken {
		if err := makeRealDir(dir); err != nil {
			return nil, err
		}
	}
	for i, b := range binds {
		target, err := makeTarget(b)
		if err != nil {
			return nil, err
		}
		binds[i].Target = target
		if i >= n {
			continue
		}
		for _, other := range taken {
			meant := target == path.Clean(b.Target) && slices.Contains(OwnMounts(), other)
			if !meant && (subpath.Within(target, other) || subpath.Within(other, target)) {
				return nil, container.RequestErrorf("the image's links lead %s into %s", b.Target, other)
			}
		}
		taken = append(taken, target)
	}
	return binds, nil
}

// OwnMounts lists the directories that every container mounts over those of its image.
func OwnMounts() []string { return []string{"/dev", "/proc", "/sys"} }

func makeTarget(b container.Bind) (string, error) {
	for _, own := range OwnMounts() {
		if subpath.Within(b.Target, own) {
			return path.Clean(b.Target), nil
		}
	}
	info, err := os.Stat(b.Source)
	if err != nil {
		return "", fmt.Errorf("bind: %w", err)
	}
	target, err := MakeInRoot(b.Target, info.IsDir())
	if err != nil {
		return "", fmt.Errorf("bind %s: %w", b.Source, err)
	}
	return target, nil
}
