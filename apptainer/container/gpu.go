package container

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
)

// driverDir is where the libraries of the host's GPU driver are inside, as
// Apptainer has it.
const driverDir = "/.singularity.d/libs"

// showDriver shows the driver of the host's GPUs in the container's root. The
// mounts are made here and not by bubblewrap, which reads the table of all
// mounts anew for each.
func (c *container) showDriver() error {
	if len(c.Driver.Libraries) == 0 && len(c.Driver.Programs) == 0 {
		return nil
	}
	if err := c.showLibraries(); err != nil {
		return fmt.Errorf("show the GPU driver: %w", err)
	}
	dir := programDir(c.Env)
	for _, program := range c.Driver.Programs {
		if err := bindInRoot(program, path.Join(dir, path.Base(program))); err != nil {
			return fmt.Errorf("show the GPU driver: %w", err)
		}
	}
	for _, file := range c.Driver.Files {
		if err := bindInRoot(file.Path, file.Name); err != nil {
			return fmt.Errorf("show the GPU driver: %w", err)
		}
	}
	c.Env = appendPath(c.Env, "LD_LIBRARY_PATH", driverDir)
	return nil
}

// showLibraries shows the driver's libraries, but not such that are not its
// own alone and that the image has: the search path is looked at before the
// image's directories. A command may set that path to something else, so there
// is a link to each library where the linker looks by itself.
func (c *container) showLibraries() error {
	images, err := imageLibraries()
	if err != nil {
		return err
	}
	links, err := linkerDir()
	if err != nil {
		return err
	}
	for _, lib := range c.Driver.Libraries {
		if lib.Common && images[lib.Name] {
			continue
		}
		inside := path.Join(driverDir, lib.Name)
		if err := bindInRoot(lib.Path, inside); err != nil {
			return err
		}
		if links == "" {
			continue
		}
		err := os.Symlink(inside, filepath.Join(rootDir, links, lib.Name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make a link to %s: %w", lib.Name, err)
		}
	}
	return nil
}

// maxLinkerCache is more than any has, in bytes.
const maxLinkerCache = 64 << 20

// imageLibraries are those that the image's own linker knows. Images need not
// have the list.
func imageLibraries() (map[string]bool, error) {
	name, err := resolveInRoot("/etc/ld.so.cache")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(rootDir, name), os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe must not hold us
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]bool{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the image's %s: %w", name, err)
	}
	defer func() { _ = f.Close() }()
	cache, err := io.ReadAll(io.LimitReader(f, maxLinkerCache))
	if err != nil {
		return nil, fmt.Errorf("read the image's %s: %w", name, err)
	}
	return gpudriver.Names(cache), nil
}

// linkerDir is a directory in which the image's linker looks without being
// told: of Debian's kind, of Red Hat's, or none.
func linkerDir() (string, error) {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "powerpc64le"}[runtime.GOARCH]
	for _, dir := range []string{"/usr/lib/" + machine + "-linux-gnu", "/usr/lib64"} {
		resolved, err := resolveInRoot(dir)
		if err != nil {
			return "", err
		}
		if info, err := os.Stat(filepath.Join(rootDir, resolved)); err == nil && info.IsDir() {
			return resolved, nil
		}
	}
	return "", nil
}

// programDir is where programs of the host are found inside: /usr/bin, or where
// the image does not look there, the last directory of its PATH.
func programDir(env []string) string {
	const usual = "/usr/bin"
	dir := usual
	for _, assignment := range env {
		if value, ok := strings.CutPrefix(assignment, "PATH="); ok {
			dirs := slices.DeleteFunc(strings.Split(value, ":"), func(dir string) bool { return !path.IsAbs(dir) })
			if len(dirs) > 0 && !slices.Contains(dirs, usual) {
				dir = dirs[len(dirs)-1]
			}
		}
	}
	return dir
}

// appendPath adds a directory to a search path of an environment.
func appendPath(env []string, name, dir string) []string {
	i := slices.IndexFunc(env, func(assignment string) bool { return strings.HasPrefix(assignment, name+"=") })
	switch {
	case i < 0:
		return append(env, name+"="+dir)
	case env[i] == name+"=":
		env[i] += dir
	default:
		env[i] += ":" + dir
	}
	return env
}

// bindInRoot shows a file of the host in the root, read-only.
func bindInRoot(source, target string) error {
	resolved, err := makeInRoot(target, false)
	if err != nil {
		return err
	}
	at := filepath.Join(rootDir, resolved)
	if err := unix.Mount(source, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(at, &s); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	flags := unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | keptFlags(s.Flags)
	if err := unix.Mount("", at, "", uintptr(flags), ""); err != nil {
		return fmt.Errorf("bind %s read-only: %w", source, err)
	}
	return nil
}

// keptFlags are those flags of a mount that a user namespace may not change
// (mount_namespaces(7): locked mounts), of statfs(2)'s as mount(2) has them.
func keptFlags(statfs int64) int {
	kept := unix.MS_STRICTATIME
	if statfs&(unix.ST_NOATIME|unix.ST_RELATIME) != 0 {
		kept = 0
	}
	for st, ms := range map[int64]int{
		unix.ST_NOEXEC: unix.MS_NOEXEC, unix.ST_NOATIME: unix.MS_NOATIME,
		unix.ST_NODIRATIME: unix.MS_NODIRATIME, unix.ST_RELATIME: unix.MS_RELATIME,
	} {
		if statfs&st != 0 {
			kept |= ms
		}
	}
	return kept
}
