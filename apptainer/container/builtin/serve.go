package builtin

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/internal/background"
)

// Descriptors that an init inherits: a server has a socket, and a container with a share of a
// mount has the files that came through that socket.
const (
	socketFD   = initproc.FirstFD
	mountFD    = initproc.FirstFD
	lifelineFD = initproc.FirstFD + 1
)

// serveDir is the scratch directory of an init that serves a SIF: a tmpfs over a directory that
// every node has, and that has neither programs nor images. A container's scratch directory would
// be removed with that container.
const serveDir = "/sys"

// serveWork names serveMount in Works.
const serveWork = "serve"

// serveMount mounts a SIF that several containers share. On request it sends a mount of it that is
// not attached (open_tree(2), Linux 5.2). A container of the same user may attach such a mount
// in its own mount namespace, and FUSE serves it there (fs/fuse/dir.c: fuse_allow_current_process).
func serveMount(p *initproc.Process) (code int, err error) {
	r := &initproc.Root{Process: p}
	for _, step := range []func() error{func() error { return p.ReadDetails(&r.RootSpec) }, p.MountProc, func() error { return mountScratch(p.Scratch) }, r.SecureSIF, p.EnterScratch, initproc.MakeDirs, r.MountSIF} {
		if err := step(); err != nil {
			return 0, err
		}
	}
	alive, lifeline, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { _ = lifeline.Close() }()         // the kernel closes it if this process is killed
	background.Detach(func() { sendMounts(alive) }) // returns when the caller closes the socket, or with this process
	for {
		select {
		case <-p.Stop:
			return 0, nil
		case d := <-p.Deaths:
			if err := r.Lost(d); err != nil {
				return 0, err
			}
		}
	}
}

// mountScratch mounts a tmpfs, and tests whether this kernel can detach mounts.
func mountScratch(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=700"); err != nil {
		return fmt.Errorf("make a scratch directory: %w", err)
	}
	tree, err := cloneMount(dir)
	if err != nil {
		return container.HostErrorf("this node's kernel cannot share mounts: that takes Linux 5.2 (%w)", err)
	}
	return syscall.Close(tree)
}

// cloneMount returns a copy of the mount at a path. The copy is not attached.
func cloneMount(path string) (fd int, err error) {
	return unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}

// sendMounts answers requests until the socket is closed. On failure it closes the socket, which
// tells the caller.
func sendMounts(alive *os.File) {
	conn, err := unixConn(os.NewFile(socketFD, "socket"))
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	for {
		if n, err := conn.Read(make([]byte, 1)); n == 0 || err != nil {
			return
		}
		tree, err := cloneMount(initproc.LowerDir)
		if err != nil {
			return
		}
		_, _, err = conn.WriteMsgUnix([]byte{0}, unix.UnixRights(tree, int(alive.Fd())), nil)
		if err = errors.Join(err, syscall.Close(tree)); err != nil {
			return
		}
	}
}

// attachShared makes the files of a shared image available at initproc.RootDir, writable, and
// reports whether it could. Otherwise the container mounts the image itself.
func (c *containerInit) attachShared() bool {
	if !c.Shared || unix.MoveMount(mountFD, "", unix.AT_FDCWD, initproc.LowerDir, unix.MOVE_MOUNT_F_EMPTY_PATH) != nil {
		return false
	}
	if c.root.MountOverlay() != nil {
		_ = unix.Unmount(initproc.LowerDir, unix.MNT_DETACH) // another mount may hide it
		return false
	}
	c.mountLost = background.Go(func() {
		_, _ = os.NewFile(lifelineFD, "lifeline").Read(make([]byte, 1)) // nothing is written to it
	})
	return true
}
