package initproc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// UnpackInstead unpacks an image that cannot be mounted, and notes the reason. The failure is the
// request's fault if the image is damaged or too large.
func (r *Root) UnpackInstead() error {
	r.Process.Note = "the image was unpacked for this run alone, which takes time and room on the node: " + r.Unpack
	r.Process.unpacks()
	err := r.unpackSIF()
	if err == nil || errors.Is(err, errStopped) {
		return err
	}
	if _, ok := errors.AsType[*container.RequestError](err); ok {
		return container.RequestErrorf("%s; and the image cannot be unpacked instead: %w", r.Unpack, err)
	}
	if damage := r.checkSIF(); damage != nil {
		return damage
	}
	_, failed := errors.AsType[*unsquashfsError](err)
	return &container.HostError{
		Err:      fmt.Errorf("%s; and the image cannot be unpacked instead: %w", r.Unpack, err),
		Doubtful: failed,
	}
}

// unsquashfsError means that the program has failed, perhaps because the image is damaged.
type unsquashfsError struct{ how string }

func (e *unsquashfsError) Error() string { return "unsquashfs has failed (" + e.how + ")" }

// checkSIF returns a *container.RequestError if the SIF's squashfs has no valid superblock.
// That finds most truncated or overwritten files, but no other damage.
func (r *Root) checkSIF() error {
	head, fits, err := r.readSuperblock()
	if err != nil || superblockIsWhole(head, fits) {
		return nil //nolint:nilerr // the host cannot read it
	}
	return container.RequestErrorf("the image is damaged: it cannot be mounted (%s), and its squashfs has no valid superblock", r.Unpack)
}

// superblockBytes is the size of a squashfs superblock (linux/fs/squashfs/squashfs_fs.h:
// squashfs_super_block).
const superblockBytes = 96

// readSuperblock returns the SIF's squashfs superblock, and the number of bytes into which the squashfs must fit.
func (r *Root) readSuperblock() (head []byte, fits int64, err error) {
	f, err := openSIF(r.SIF)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("find the image's size: %w", err)
	}
	head = make([]byte, superblockBytes)
	if n, err := f.ReadAt(head, r.Offset); err != nil && (!errors.Is(err, io.EOF) || n == len(head)) {
		return nil, 0, fmt.Errorf("read the image: %w", err)
	}
	return head, info.Size() - r.Offset, nil
}

// superblockIsWhole reports whether a superblock is that of a squashfs 4.0 that fits into this
// number of bytes, with its tables inside.
func superblockIsWhole(head []byte, fits int64) bool {
	const magic, major = 0x73717368, 4
	order := binary.LittleEndian
	used := order.Uint64(head[40:])
	if order.Uint32(head) != magic || order.Uint16(head[28:]) != major || used > uint64(max(fits, 0)) {
		return false
	}
	// The tables of ids, inodes and directories, which every image has.
	for _, at := range []int{48, 64, 72} {
		if order.Uint64(head[at:]) >= used {
			return false
		}
	}
	return true
}

// unpackSIF writes the SIF's files to RootDir, without device files. If the namespace has only one id, their
// owner becomes the calling user, which is root in the container, and no mode raises privileges.
func (r *Root) unpackSIF() error {
	unsquashfs, err := FindUnsquashfs()
	if err != nil {
		return err
	}
	if container.IsNoexec(RootDir) {
		return fmt.Errorf("the scratch, with %s, is mounted noexec, so that no program in it can be executed", r.Process.PrivateDir)
	}
	limits, err := r.limitUnpacking()
	if err != nil {
		return err
	}
	pid, output, err := r.startUnsquashfs(unsquashfs)
	if err != nil {
		return err
	}
	death, err := r.awaitUnpacked(pid, limits)
	if err != nil {
		return err
	}
	// unsquashfs(1), EXIT STATUS: 2 means that some files could not be made exactly, such as a
	// device file.
	if death.Status.Exited() && (death.Status.ExitStatus() == 0 || death.Status.ExitStatus() == 2) {
		return nil
	}
	words := output.String()
	if strings.Contains(words, "No space left on device") || strings.Contains(words, "Disk quota exceeded") {
		return limits.outOfRoom(context.Background())
	}
	return fmt.Errorf("%w: %s", &unsquashfsError{death.String()}, words)
}

// startUnsquashfs starts the program in bubblewrap, where it can write only to RootDir, because
// links and names in an image led some versions out of it (CVE-2021-40153, CVE-2021-41072). It
// limits the buffers, for which the program would use half of the memory by default. With one id, it runs
// in a user namespace in which it is not root, so that it does not try to change owners.
func (r *Root) startUnsquashfs(program string) (pid int, output *tail, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, nil, fmt.Errorf("start unsquashfs: %w", err)
	}
	output = readTail(read)
	defer func() { _ = write.Close() }()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, nil, fmt.Errorf("start unsquashfs: %w", err)
	}
	defer func() { _ = null.Close() }()
	const buffer = "32" // MiB
	root := filepath.Join(r.Process.PrivateDir, RootDir)
	options := []string{"--unshare-user", "--uid", "1", "--gid", "1"}
	if r.Process.Ranged {
		options = []string{"--cap-drop", "ALL"}
		for _, name := range []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID"} {
			options = append(options, "--cap-add", name)
		}
	}
	pid, err = r.Process.Start(append(append([]string{
		r.Bubblewrap, "--ro-bind", "/", "/", "--bind", root, root,
	}, options...), []string{
		"--unshare-net", "--unshare-ipc", "--chdir", "/", "--",
		program, "-no-progress", "-user-xattrs", "-processors", strconv.Itoa(runtime.NumCPU()),
		"-data-queue", buffer, "-frag-queue", buffer,
		"-offset", strconv.FormatInt(r.Offset, 10), "-force", "-dest", root, r.SIF,
	}...), &syscall.ProcAttr{
		Env:   []string{},
		Files: []uintptr{null.Fd(), null.Fd(), write.Fd()},
	})
	return pid, output, err
}
