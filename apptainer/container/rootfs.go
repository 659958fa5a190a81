package container

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxSymlinks is how many links Linux follows in one path.
const maxSymlinks = 40

// What stands in a container's scratch directory, which init works in.
const (
	lowerDir = "lower" // the image
	upperDir = "upper" // what the command changes of it
	workDir  = "work"  // overlayfs's own
	rootDir  = "root"  // the two together
	shmDir   = "shm"   // a tmpfs, /dev/shm inside
)

// mountOverlay mounts the container's root over the image, writable.
func (c *container) mountOverlay() error {
	if err := checkAttributes(); err != nil {
		return err
	}
	// Nothing in upper/ outlives the container: it need not be flushed.
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,userxattr", lowerDir, upperDir, workDir)
	err := unix.Mount("overlay", rootDir, "overlay", unix.MS_NODEV, options+",volatile")
	if errors.Is(err, unix.EINVAL) { // before Linux 5.10
		err = unix.Mount("overlay", rootDir, "overlay", unix.MS_NODEV, options)
	}
	if err != nil {
		return overlayError(c.Scratch, err)
	}
	return nil
}

// checkAttributes refuses an image whose directories have extended attributes that
// an overlay of an ordinary user cannot copy (fs/overlayfs/copy_up.c:
// ovl_copy_xattr), and that nothing could be written to. All files of a SIF have
// such that Apptainer has made on a host with SELinux; squashfuse up to 0.1.105
// tells of them as trusted.selinux. Our own SIFs have none.
func checkAttributes() error {
	for _, dir := range []string{".", "etc", "usr", "tmp"} {
		names := make([]byte, 64<<10) // XATTR_LIST_MAX
		n, err := unix.Llistxattr(filepath.Join(lowerDir, dir), names)
		if err != nil { // it is not there, or has none
			continue
		}
		for name := range strings.SplitSeq(string(names[:n]), "\x00") {
			if name != "" && !strings.HasPrefix(name, "user.") {
				return &labelError{name}
			}
		}
	}
	return nil
}

// labelError is that an image's files have attributes that an overlay cannot copy.
type labelError struct{ name string }

func (e *labelError) Error() string {
	return fmt.Sprintf("the image's files have attributes (%s) that an overlay of an ordinary user cannot copy, "+
		"such as a host with SELinux gives them; mksquashfs -no-xattrs leaves them out", e.name)
}

// furnishRoot puts in the container's root what every container has.
func (c *container) furnishRoot() error {
	if err := c.mountShm(); err != nil {
		return err
	}
	if err := c.writeNetworkFiles(); err != nil {
		return fmt.Errorf("write /etc/hosts and /etc/resolv.conf: %w", err)
	}
	return nil
}

// mountShm mounts what becomes /dev/shm.
func (c *container) mountShm() error {
	options := "mode=1777"
	if c.ShmBytes > 0 {
		options += fmt.Sprintf(",size=%d", c.ShmBytes)
	}
	if err := unix.Mount("tmpfs", shmDir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, options); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	return nil
}

// writeNetworkFiles gives the container the host's name resolution where it
// has the host's network, and else that of its own loopback interface. Like
// Docker's, the files are the container's own to change.
func (c *container) writeNetworkFiles() error {
	if !c.Network {
		hosts, err := loopbackHosts()
		if err != nil {
			return err
		}
		return writeInRoot("/etc/hosts", hosts)
	}
	for _, file := range []string{"/etc/hosts", "/etc/resolv.conf"} {
		content, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = writeInRoot(file, content)
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", file, err)
		}
	}
	return nil
}

// loopbackHosts is an /etc/hosts for a loopback interface alone.
func loopbackHosts() ([]byte, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the host's name: %w", err)
	}
	return []byte("127.0.0.1\tlocalhost " + name + "\n::1\tlocalhost ip6-localhost ip6-loopback\n"), nil
}

// writeInRoot replaces a file of the container, or a link in its place.
func writeInRoot(name string, content []byte) error {
	dir, err := makeInRoot(path.Dir(name), true)
	if err != nil {
		return err
	}
	host := filepath.Join(rootDir, dir, path.Base(name))
	if err := os.Remove(host); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace the image's: %w", err)
	}
	f, err := os.OpenFile(host, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // everybody inside reads it
	if err != nil {
		return fmt.Errorf("make the container's: %w", err)
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// resolveInRoot follows name through the container's directories and symbolic
// links, none of which leads out of it. What is missing is taken as written.
// The container does not run yet, so nothing changes under it.
func resolveInRoot(name string) (string, error) {
	at, rest := "/", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		next := path.Join(at, part)
		target, err := os.Readlink(filepath.Join(rootDir, next))
		switch {
		case part == "" || part == ".":
			continue
		case part == ".." || err != nil: // no link, or nothing there
			at = next
			continue
		}
		if links++; links > maxSymlinks {
			return "", fmt.Errorf("%s: too many symbolic links in the image", name)
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}

// makeInRoot makes a mount point, a directory or an empty file, where the
// container has nothing, and gives its name with all links resolved.
func makeInRoot(name string, directory bool) (string, error) {
	resolved, err := resolveInRoot(name)
	if err != nil {
		return "", err
	}
	host := filepath.Join(rootDir, resolved)
	info, err := os.Stat(host)
	if err == nil {
		if info.IsDir() != directory {
			return "", fmt.Errorf("%s: the image has something of another kind there", name)
		}
		return resolved, nil
	}
	dir := host
	if !directory {
		dir = filepath.Dir(host)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as Docker makes them
		return "", fmt.Errorf("make %s in the container: %w", name, err)
	}
	if directory {
		return resolved, nil
	}
	f, err := os.OpenFile(host, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as Docker makes them
	if err != nil {
		return "", fmt.Errorf("make %s in the container: %w", name, err)
	}
	if err := f.Close(); err != nil {
		return "", fmt.Errorf("make %s in the container: %w", name, err)
	}
	return resolved, nil
}

// shells are looked for in this order.
func shells() []string { return []string{"/bin/bash", "/bin/sh"} }

// shell is the image's.
func shell() (string, error) {
	for _, name := range shells() {
		resolved, err := resolveInRoot(name)
		if err != nil {
			continue
		}
		info, err := os.Stat(filepath.Join(rootDir, resolved))
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return name, nil
		}
	}
	return "", ErrNoShell
}

// ownMounts are made anew in every container, over whatever the image has.
func ownMounts() []string { return []string{"/dev", "/proc", "/sys"} }

// bubblewrapArgs are the options that make the container, and its command.
// Every target is given with its links resolved, because bubblewrap would
// follow those of the image while the host's files are still in reach.
func (c *container) bubblewrapArgs() (args bubblewrapArgs, err error) {
	args.command = c.Args
	if len(c.Args) == 0 {
		sh, err := shell()
		if err != nil {
			return args, err
		}
		args.command = []string{sh, "-c", c.ShellCommand}
	}
	args.add("--bind", filepath.Join(c.Scratch, rootDir), "/")
	for _, dir := range ownMounts() {
		if err := ensureRealDir(dir); err != nil {
			return args, err
		}
	}
	args.add("--dev", "/dev", "--proc", "/proc", "--ro-bind", "/sys", "/sys")
	args.add("--bind", filepath.Join(c.Scratch, shmDir), "/dev/shm")
	for _, device := range c.Devices {
		args.add("--dev-bind", device, device)
	}
	taken := ownMounts()
	for i, b := range c.Binds {
		if b.Exact {
			if b.Source, err = c.pin(i, b.Source); err != nil {
				return args, err
			}
		}
		target, err := bindTarget(b)
		if err == nil {
			taken, err = addTarget(taken, b.Target, target)
		}
		if err != nil {
			return args, err
		}
		option := "--bind"
		if b.ReadOnly {
			option = "--ro-bind"
		}
		args.add(option, b.Source, target)
	}
	dir, err := c.workingDir()
	if err != nil {
		return args, err
	}
	args.add("--chdir", dir)
	args.addIsolation(c.Network)
	for _, assignment := range c.Env {
		name, value, _ := strings.Cut(assignment, "=")
		args.add("--setenv", name, value)
	}
	return args, nil
}

// ensureRealDir makes sure that a mount point in the root is a directory and
// no link.
func ensureRealDir(name string) error {
	host := filepath.Join(rootDir, name)
	if info, err := os.Lstat(host); err == nil && info.IsDir() {
		return nil
	}
	err := os.Remove(host)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Mkdir(host, 0o755) //nolint:gosec // something is mounted over it
	}
	if err != nil {
		return fmt.Errorf("make %s in the container: %w", name, err)
	}
	return nil
}

// bindTarget makes the mount point of a bind.
func bindTarget(b Bind) (string, error) {
	for _, own := range ownMounts() {
		if isBelow(b.Target, own) {
			return path.Clean(b.Target), nil
		}
	}
	info, err := os.Stat(b.Source)
	if err != nil {
		return "", fmt.Errorf("bind: %w", err)
	}
	target, err := makeInRoot(b.Target, info.IsDir())
	if err != nil {
		return "", fmt.Errorf("bind %s: %w", b.Source, err)
	}
	return target, nil
}

// workingDir makes the working directory where neither the image nor a mount
// has it, as Docker does.
func (c *container) workingDir() (string, error) {
	dir := cmp.Or(c.Dir, "/")
	mounts := ownMounts()
	for _, b := range c.Binds {
		mounts = append(mounts, b.Target)
	}
	for _, m := range mounts {
		if isBelow(dir, m) {
			return dir, nil
		}
	}
	if _, err := makeInRoot(dir, true); err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	return dir, nil
}
