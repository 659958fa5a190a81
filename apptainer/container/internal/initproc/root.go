package initproc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// maxSymlinks is Linux's limit of links in one path.
const maxSymlinks = 40

// MountShm mounts the tmpfs that is or becomes /dev/shm.
func (r *Root) MountShm(at string) error {
	options := "mode=1777"
	if r.ShmBytes > 0 {
		options += fmt.Sprintf(",size=%d", r.ShmBytes)
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, options); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	return nil
}

// WriteFiles adds files to those of the image. The layer of a keeper has them for its containers.
func (r *Root) WriteFiles() error {
	if r.Process.keeper != nil {
		return nil
	}
	setAptUser()
	return r.WriteNetworkFiles()
}

// WriteNetworkFiles gives the container its name resolution. As in Docker, the files are copies, which the
// container may change.
func (r *Root) WriteNetworkFiles() error {
	hosts, err := r.Hosts()
	if err == nil && hosts != nil {
		err = writeInRoot("/etc/hosts", hosts)
	}
	if err == nil {
		var resolv []byte
		if resolv, err = r.Resolv(); err == nil && resolv != nil {
			err = writeInRoot("/etc/resolv.conf", resolv)
		}
	}
	if err != nil {
		return fmt.Errorf("write /etc/hosts and /etc/resolv.conf: %w", err)
	}
	return nil
}

// Hosts returns the container's /etc/hosts. It is nil if the container has the host's network, and the host none.
func (r *Root) Hosts() ([]byte, error) {
	switch r.Network {
	case container.HostNetwork:
		return readIfThere("/etc/hosts")
	case container.PrivateNetwork:
		return r.private.names.Hosts, nil
	case container.NoNetwork:
	}
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the host's name: %w", err)
	}
	return []byte("127.0.0.1\tlocalhost " + name + "\n::1\tlocalhost ip6-localhost ip6-loopback\n"), nil
}

// Resolv returns the container's /etc/resolv.conf, or nil if the image's stays.
func (r *Root) Resolv() ([]byte, error) {
	switch r.Network {
	case container.HostNetwork:
		return readIfThere("/etc/resolv.conf")
	case container.PrivateNetwork:
		return r.private.names.Resolv, nil
	case container.NoNetwork:
	}
	return nil, nil
}

func readIfThere(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// writeInRoot replaces a file of the container, or a link with its name.
func writeInRoot(name string, content []byte) error {
	dir, err := MakeInRoot(path.Dir(name), true)
	if err != nil {
		return err
	}
	file := filepath.Join(RootDir, dir, path.Base(name))
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace the image's: %w", container.InImage(err))
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("make the container's: %w", container.InImage(err))
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// ResolveInRoot follows name through the container's directories and symbolic links, without
// leaving the root. It keeps missing parts as written. The container does not run yet, so nothing
// changes during the call.
func ResolveInRoot(name string) (string, error) {
	at, rest := "/", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		next := path.Join(at, part)
		if part == ".." {
			at = next
			continue
		}
		target, err := os.Readlink(filepath.Join(RootDir, next))
		if err != nil { // not a link, or missing
			at = next
			continue
		}
		if links++; links > maxSymlinks {
			return "", container.RequestErrorf("%s: too many symbolic links in the image", name)
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}

// MakeInRoot makes a mount point if the container has none: a directory, or an empty file. It
// returns its name with all links resolved.
func MakeInRoot(name string, directory bool) (string, error) {
	resolved, err := ResolveInRoot(name)
	if err != nil {
		return "", err
	}
	at := filepath.Join(RootDir, resolved)
	info, err := os.Stat(at)
	if err == nil {
		if info.IsDir() != directory {
			return "", container.RequestErrorf("%s: the image has something of another kind there", name)
		}
		return resolved, nil
	}
	if err := makeMountPoint(at, directory, 0o755); err != nil { // Docker's mode
		return "", fmt.Errorf("make %s in the container: %w", name, container.InImage(err))
	}
	return resolved, nil
}

// makeRealDir makes a mount point in the root a directory, if it is a link or not a directory.
func makeRealDir(name string) error {
	at := filepath.Join(RootDir, name)
	if info, err := os.Lstat(at); err == nil && info.IsDir() {
		return nil
	}
	err := os.Remove(at)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Mkdir(at, 0o755)
	}
	if err != nil {
		return fmt.Errorf("make %s in the container: %w", name, container.InImage(err))
	}
	return nil
}
