package initproc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/seccomp"
	"github.com/cl-slurm/cl-slurm/internal/background"
)

// imageWork is the work of an init that has an image mounted for others (Images).
const imageWork = "image"

// imageFD is the descriptor on which an init gets a mount of its image, and openedFD that of the open SIF.
const (
	imageFD  = 6
	openedFD = 7
)

// serveImage is the program of such an init. It ends with its caller, or with squashfuse.
func (p *Process) serveImage() error {
	r := &Root{Process: p}
	if err := p.ReadDetails(&r.RootSpec); err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := p.confine(seccomp.ForbidKeys); err != nil {
		return err
	}
	makeDir := func() error { return os.Mkdir(LowerDir, 0o755) }
	for _, step := range []func() error{p.EnterPrivateDir, makeDir, p.MountProc, r.SecureSIF, r.mountSIF} {
		if err := step(); err != nil {
			return fmt.Errorf("mount the image: %w", err)
		}
	}
	limit, err := openFilesOf(r.squashfuse)
	if err != nil {
		return err
	}
	sif, err := openSIF(r.SIF)
	if err != nil {
		return err
	}
	p.Begin()
	background.Detach(func() { giveMounts(sif, limit) }) // ends with this process
	for d := range p.Deaths {
		if err := r.Lost(d); err != nil {
			return err
		}
	}
	return errImageLost
}

// giveMounts sends a mount of the image, and its open SIF, for each byte that the caller writes. The mount has no place in a namespace, and
// any user namespace can attach it (move_mount(2)).
func giveMounts(sif *os.File, limit unix.Rlimit) {
	text := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, limit.Cur), limit.Max)
	for {
		switch n, err := unix.Read(ordersFD, make([]byte, 1)); {
		case errors.Is(err, unix.EINTR):
			continue
		case n != 1:
			return // the caller is gone
		}
		var rights []byte
		mount, err := unix.OpenTree(unix.AT_FDCWD, LowerDir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err == nil {
			rights = unix.UnixRights(mount, int(sif.Fd()))
		}
		sent := unix.Sendmsg(ordersFD, text, rights, nil, unix.MSG_NOSIGNAL)
		if err == nil {
			_ = unix.Close(mount)
		}
		if sent != nil { // the caller is gone, or must not wait for ever
			_ = unix.Close(ordersFD)
			return
		}
	}
}

// attachImage makes the image that the caller has mounted available at LowerDir; false if that is not possible here.
func (r *Root) attachImage() bool {
	err := unix.MoveMount(imageFD, "", unix.AT_FDCWD, LowerDir, unix.MOVE_MOUNT_F_EMPTY_PATH)
	_ = unix.Close(imageFD) // the mount stays
	if err == nil {
		r.SIF = fmt.Sprintf("/proc/self/fd/%d", openedFD)
	}
	return err == nil
}
