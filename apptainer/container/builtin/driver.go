package builtin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
)

// showDriver shows the driver of the host's GPUs in the container's root. It makes the mounts
// itself, because bubblewrap reads the table of all mounts again for each.
func (c *containerInit) showDriver() error {
	if c.Driver.IsEmpty() {
		return nil
	}
	err := c.showLibraries()
	for _, file := range c.Driver.Inside(c.Env) {
		if err == nil {
			err = bindInRoot(file.Path, file.Name)
		}
	}
	if err != nil {
		return fmt.Errorf("show the GPU driver: %w", err)
	}
	c.Env = gpudriver.WithLibraryDir(c.Env)
	return nil
}

// showLibraries shows the driver's libraries. It omits common ones that the image has, because the
// linker searches LibraryDir before the image's directories. A command may overwrite
// LD_LIBRARY_PATH, so showLibraries links each library into a directory that the linker always
// searches.
func (c *containerInit) showLibraries() error {
	inImage, err := imageLibraries()
	if err != nil {
		return err
	}
	links, err := linkerDir()
	if err != nil {
		return err
	}
	for _, lib := range c.Driver.Libraries {
		if lib.Common && inImage[lib.Name] {
			continue
		}
		inside := path.Join(gpudriver.LibraryDir, lib.Name)
		if err := bindInRoot(lib.Path, inside); err != nil {
			return err
		}
		if links == "" {
			continue
		}
		err := os.Symlink(inside, filepath.Join(initproc.RootDir, links, lib.Name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make a link to %s: %w", lib.Name, container.InImage(err))
		}
	}
	return nil
}

// maxLinkerCache is larger than any real one, in bytes.
const maxLinkerCache = 64 << 20

// imageLibraries returns the libraries in the cache of the image's own linker, if it has one.
func imageLibraries() (map[string]bool, error) {
	name, err := initproc.ResolveInRoot("/etc/ld.so.cache")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(initproc.RootDir, name), os.O_RDONLY|unix.O_NONBLOCK, 0) // does not block on a pipe
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]bool{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the image's %s: %w", name, container.InImage(err))
	}
	defer func() { _ = f.Close() }()
	cache, err := io.ReadAll(io.LimitReader(f, maxLinkerCache))
	if err != nil {
		return nil, fmt.Errorf("read the image's %s: %w", name, container.InImage(err))
	}
	return gpudriver.Names(cache), nil
}

// linkerDir returns a directory that the image's linker always searches: Debian's, Red Hat's, or
// "".
func linkerDir() (string, error) {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "powerpc64le"}[runtime.GOARCH]
	for _, dir := range []string{"/usr/lib/" + machine + "-linux-gnu", "/usr/lib64"} {
		resolved, err := initproc.ResolveInRoot(dir)
		if err != nil {
			return "", err
		}
		if info, err := os.Stat(filepath.Join(initproc.RootDir, resolved)); err == nil && info.IsDir() {
			return resolved, nil
		}
	}
	return "", nil
}

// bindInRoot shows a file of the host in the root, read-only.
func bindInRoot(source, target string) error {
	resolved, err := initproc.MakeInRoot(target, false)
	if err != nil {
		return err
	}
	at := filepath.Join(initproc.RootDir, resolved)
	if err := unix.Mount(source, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(at, &s); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	flags := unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | lockedFlags(s.Flags)
	if err := unix.Mount("", at, "", uintptr(flags), ""); err != nil {
		return fmt.Errorf("bind %s read-only: %w", source, err)
	}
	return nil
}

// lockedFlags translates the flags of statfs(2) that a user namespace must not change into those of
// mount(2) (mount_namespaces(7): locked mounts).
func lockedFlags(statfs int64) int {
	flags := unix.MS_STRICTATIME
	if statfs&(unix.ST_NOATIME|unix.ST_RELATIME) != 0 {
		flags = 0
	}
	for st, ms := range map[int64]int{
		unix.ST_NOEXEC: unix.MS_NOEXEC, unix.ST_NOATIME: unix.MS_NOATIME,
		unix.ST_NODIRATIME: unix.MS_NODIRATIME, unix.ST_RELATIME: unix.MS_RELATIME,
	} {
		if statfs&st != 0 {
			flags |= ms
		}
	}
	return flags
}
