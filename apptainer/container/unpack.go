package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

// Where a node lets no ordinary user mount the image, or an overlay over it, it is
// unpacked for the run, to the scratch directory. That takes seconds and the
// room of its files, and no other run shares it.

// chooseMount finds what the image is mounted by, or why it has to be unpacked.
func (s *initSpec) chooseMount() {
	var err error
	if s.Squashfuse, err = findProgram("squashfuse", "squashfuse_ll", "squashfuse"); err == nil {
		err = checkFuse()
	}
	if err != nil {
		s.Unpack = err.Error()
	}
}

// placeImage has the image's files at rootDir, writable.
func (c *container) placeImage() error {
	if mounted, err := c.mountRoot(); mounted || err != nil {
		return err
	}
	if err := c.unpackImage(); err != nil {
		return lacking("%s; and the image cannot be unpacked instead: %w", c.Unpack, err)
	}
	return nil
}

// mountRoot mounts the image, and the container's root over it. Where that
// cannot be done here, c.Unpack says why, and nothing of it is left.
func (c *container) mountRoot() (mounted bool, err error) {
	if c.placeShared() {
		return true, nil
	}
	if err := c.holdImage(); err != nil {
		return false, err
	}
	if c.Unpack != "" {
		return false, nil
	}
	if err = c.mountImage(); err == nil {
		err = c.mountOverlay()
	}
	if err == nil || errors.Is(err, errStopped) {
		return err == nil, err
	}
	var label *labelError
	c.labelled = errors.As(err, &label)
	c.Unpack = err.Error()
	return false, c.dropImage()
}

// note tells of an image that was unpacked.
func (c *container) note() string {
	if c.Unpack == "" || c.Apptainer != nil && !c.unpacksForApptainer() {
		return ""
	}
	return "the image was unpacked for this run alone, which takes time and room on the node: " + c.Unpack
}

// dropImage unmounts the image and ends what serves it.
func (c *container) dropImage() error {
	if err := unix.Unmount(lowerDir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) { // it is not mounted
		return fmt.Errorf("unmount the image: %w", err)
	}
	c.end()
	c.deaths, c.squashfuse = make(chan death), 0
	return nil
}

// unpackImage writes the image's files to rootDir. All belong to the user, whom
// the container takes for root, whoever they belong to in the image; device
// files are left out, and no mode is set that raises privileges.
func (c *container) unpackImage() error {
	unsquashfs, err := findProgram("squashfs-tools", "unsquashfs")
	if err != nil {
		return err
	}
	if err := c.checkRoom(); err != nil {
		return err
	}
	pid, said, err := c.startUnsquashfs(unsquashfs)
	if err != nil {
		return fmt.Errorf("start unsquashfs: %w", err)
	}
	status, err := c.awaitChild(pid)
	if err != nil {
		return err
	}
	// unsquashfs(1), EXIT STATUS: 2 is for what could not be made as it is in
	// the image, such as a device file.
	if status.Exited() && (status.ExitStatus() == 0 || status.ExitStatus() == 2) {
		return nil
	}
	words := said.String()
	if strings.Contains(words, "No space left on device") || strings.Contains(words, "Disk quota exceeded") {
		return fmt.Errorf("there is no room for it in %s", c.Scratch)
	}
	return fmt.Errorf("unsquashfs has failed (%s): %s", describe(status), words)
}

// startUnsquashfs starts the program, by bubblewrap, with nothing but rootDir to
// write to: some versions were led out of it by an image's links and names
// (CVE-2021-40153, CVE-2021-41072). It would take half of the memory for its
// buffers if it were let, and all processors of the node. In a user namespace
// in which it is not root it does not try to give files to users who are not
// there.
func (c *container) startUnsquashfs(program string) (pid int, said *tail, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, nil, fmt.Errorf("make a pipe: %w", err)
	}
	said = readTail(r)
	defer func() { _ = w.Close() }()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, nil, fmt.Errorf("give it no input: %w", err)
	}
	defer func() { _ = null.Close() }()
	const buffer = "32" // MiB
	root := filepath.Join(c.Scratch, rootDir)
	args := []string{
		c.Bubblewrap, "--ro-bind", "/", "/", "--bind", root, root,
		"--unshare-user", "--uid", "1", "--gid", "1", "--unshare-net", "--unshare-ipc", "--chdir", "/", "--",
		program, "-no-progress", "-user-xattrs", "-processors", strconv.Itoa(runtime.NumCPU()),
		"-data-queue", buffer, "-frag-queue", buffer,
		"-offset", strconv.FormatInt(c.Offset, 10), "-force", "-dest", root, c.SIF,
	}
	pid, err = syscall.ForkExec(c.Bubblewrap, args, &syscall.ProcAttr{ //nolint:gosec // programs of the host, found by us
		Env:   []string{},
		Files: []uintptr{null.Fd(), null.Fd(), w.Fd()},
	})
	return pid, said, err
}

// checkRoom refuses what cannot fit: files take no less room than the image.
func (c *container) checkRoom() error {
	info, err := os.Stat(c.SIF)
	if err != nil {
		return fmt.Errorf("look at the image: %w", err)
	}
	disk, err := diskspace.Of(".")
	if err != nil {
		return fmt.Errorf("look for room: %w", err)
	}
	if need := info.Size() - c.Offset; disk.Free < need {
		return fmt.Errorf("it takes more than %d MiB, and %s has %d MiB free", need>>20, c.Scratch, disk.Free>>20)
	}
	return nil
}

// awaitChild waits for the only child.
func (c *container) awaitChild(pid int) (status syscall.WaitStatus, err error) {
	done := make(chan error, 1)
	go func() {
		for {
			_, err := syscall.Wait4(pid, &status, 0, nil)
			if !errors.Is(err, syscall.EINTR) {
				done <- err
				return
			}
		}
	}()
	select {
	case err = <-done:
	case <-c.stop:
		_ = syscall.Kill(pid, syscall.SIGKILL)
		<-done //nolint:errcheck // it was killed
		return status, errStopped
	}
	if err != nil {
		return status, fmt.Errorf("wait for unsquashfs: %w", err)
	}
	return status, nil
}

// describe says how a child ended.
func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
