package container

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// pinDir, in a container's scratch directory, holds the mounts of its image and
// of its exact binds.
const pinDir = "pin"

// pin mounts the source of an exact bind and returns where.
func (c *container) pin(i int, source string) (string, error) {
	f, err := openExact(source)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // the mount holds it
	return c.pinFile(f, strconv.Itoa(i))
}

// pinFile mounts an open file or directory in init's own mount namespace, under
// a name in pinDir, and returns where. From then on nobody outside can make the
// path lead elsewhere.
func (c *container) pinFile(f *os.File, name string) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("bind: %w", err)
	}
	at := filepath.Join(c.Scratch, pinDir, name)
	if err := makePin(at, info.IsDir()); err != nil {
		return "", err
	}
	if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return "", fmt.Errorf("bind %s: %w", f.Name(), err)
	}
	return at, nil
}

// openExact opens a path that has no symbolic link in it.
func openExact(source string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, source, &unix.OpenHow{
		// Opened to be read, so that an automounter brings it in. A pipe must
		// not hold us.
		Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("bind %s: there is a symbolic link in its path now", source)
	}
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", source, err)
	}
	return os.NewFile(uintptr(fd), source), nil
}

// makePin makes a mount point.
func makePin(at string, directory bool) error {
	err := os.MkdirAll(filepath.Dir(at), 0o700)
	if err == nil && directory {
		err = os.Mkdir(at, 0o700)
	} else if err == nil {
		err = os.WriteFile(at, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("make a mount point: %w", err)
	}
	return nil
}

// addTarget adds a bind's target, with links resolved, to those of other mounts.
// An image's links must not lead one into another: what bubblewrap makes there
// it makes on the host.
func addTarget(taken []string, asked, target string) ([]string, error) {
	for _, other := range taken {
		meant := target == path.Clean(asked) && slices.Contains(ownMounts(), other)
		if !meant && (isBelow(target, other) || isBelow(other, target)) {
			return nil, fmt.Errorf("the image's links lead %s into %s", asked, other)
		}
	}
	return append(taken, target), nil
}
