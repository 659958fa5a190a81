package container

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Descriptors that init inherits behind the others: one that serves an image has
// a socket, and one whose container has a share of it what came through that.
const (
	socketFD   = 5
	mountFD    = 5
	lifelineFD = 6
)

// serveDir is the scratch directory of an init that serves an image: a tmpfs of
// its own, which stands over a directory that every node has, and that holds
// neither programs nor images. A container's would go with the container.
const serveDir = "/sys"

// serveImage is run for an image that several containers share: it mounts the
// image and, whenever its caller asks, hands out a mount of it that is attached
// nowhere (open_tree(2), Linux 5.2). Such a mount may be attached in the mount
// namespace of another container, which FUSE serves since it is the same user's
// (fs/fuse/dir.c: fuse_allow_current_process).
func (c *container) serveImage() (code int, err error) {
	if err := mountProc(); err != nil {
		return 0, err
	}
	if err := unix.Mount("tmpfs", c.Scratch, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=700"); err != nil {
		return 0, fmt.Errorf("make a scratch directory: %w", err)
	}
	if tree, err := cloneMount(c.Scratch); err != nil {
		return 0, lacking("this node's kernel hands out no mounts: that takes Linux 5.2 (%w)", err)
	} else if err := syscall.Close(tree); err != nil {
		return 0, fmt.Errorf("try to hand out a mount: %w", err)
	}
	if err := c.holdImage(); err != nil {
		return 0, err
	}
	if err := os.Chdir(c.Scratch); err != nil {
		return 0, fmt.Errorf("enter its scratch directory: %w", err)
	}
	if err := os.Mkdir(lowerDir, 0o755); err != nil { //nolint:gosec // what is mounted there has a mode of its own
		return 0, fmt.Errorf("make its scratch directory: %w", err)
	}
	if err := c.mountImage(); err != nil {
		return 0, err
	}
	alive, lifeline, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { _ = lifeline.Close() }() // at the latest, the kernel does it
	go handOut(alive)
	select {
	case <-c.stop:
		return 0, nil
	case d := <-c.deaths:
		return 0, c.lost(d)
	}
}

// cloneMount makes a mount of what is mounted at a path, attached nowhere.
func cloneMount(path string) (fd int, err error) {
	return unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}

// handOut answers requests, until there is nobody to ask.
func handOut(alive *os.File) {
	conn, err := unixConn(os.NewFile(socketFD, "socket"))
	if err != nil {
		return // which tells the caller
	}
	defer func() { _ = conn.Close() }()
	for {
		if n, err := conn.Read(make([]byte, 1)); n == 0 || err != nil {
			return
		}
		tree, err := cloneMount(lowerDir)
		if err != nil {
			return
		}
		_, _, err = conn.WriteMsgUnix([]byte{0}, unix.UnixRights(tree, int(alive.Fd())), nil)
		if err = errors.Join(err, syscall.Close(tree)); err != nil {
			return
		}
	}
}

// errImageLost is the cause when a container's image is served no more.
var errImageLost = errors.New("squashfuse, which serves the image's files to this and other containers, has ended")

// placeShared has the files of a container's share of an image at rootDir,
// writable, if it can. Whoever has no share mounts the image itself.
func (c *container) placeShared() bool {
	if !c.Shared || unix.MoveMount(mountFD, "", unix.AT_FDCWD, lowerDir, unix.MOVE_MOUNT_F_EMPTY_PATH) != nil {
		return false
	}
	if c.mountOverlay() != nil {
		_ = unix.Unmount(lowerDir, unix.MNT_DETACH) // what is mounted next may stand over it
		return false
	}
	c.imageLost = make(chan struct{})
	go func() {
		defer close(c.imageLost)
		_, _ = os.NewFile(lifelineFD, "lifeline").Read(make([]byte, 1)) // nothing is ever written to it
	}()
	return true
}
