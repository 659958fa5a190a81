package initproc

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// Directories in the private directory, which is the init's working directory. Containers of a keeper use those of the keeper as mount
// points, each in its own mount namespace; see also keptRoot.
const (
	LowerDir  = "lower"
	UpperDir  = "upper"
	workDir   = "work"
	RootDir   = "root"
	ShmDir    = "shm"
	secureDir = "secure"
)

// Root is the root file system of an init's container.
type Root struct {
	RootSpec

	Process *Process
	// Labelled is set if the image's files have attributes that no overlay copies, so that an
	// overlay would not be writable.
	Labelled bool

	squashfuse int // its process id; 0 while it does not run
	serverLog  *tail
	private    *privateNetwork // nil unless the container has or gets one
}

// MakeDirs makes the directories of the private directory.
func (p *Process) MakeDirs() error {
	if p.keeper != nil {
		return nil
	}
	for _, dir := range []string{LowerDir, UpperDir, workDir, RootDir, ShmDir} {
		if err := os.Mkdir(filepath.Join(p.PrivateDir, dir), 0o755); err != nil {
			return fmt.Errorf("make its private directory: %w", err)
		}
	}
	return nil
}

// Make makes the image's files available at RootDir, writable: it mounts them, or unpacks them if
// that is not possible.
func (r *Root) Make() error {
	if mounted, err := r.Mount(); mounted || err != nil {
		return err
	}
	return r.UnpackInstead()
}

// Mount mounts the image, and an overlay for the root over it. If that is not possible here, it
// sets Unpack to the reason, and leaves nothing mounted.
func (r *Root) Mount() (mounted bool, err error) {
	if k := r.Process.keeper; k != nil {
		return true, k.mountFor(r)
	}
	if err := r.SecureSIF(); err != nil {
		return false, err
	}
	if r.Unpack != "" {
		return false, nil
	}
	if err = r.mountSIF(); err == nil {
		err = r.MountOverlay()
	}
	if err == nil || errors.Is(err, errStopped) {
		return err == nil, err
	}
	_, r.Labelled = errors.AsType[*labelError](err)
	r.Unpack = err.Error()
	return false, r.unmountSIF()
}

func (r *Root) unmountSIF() error {
	if err := unix.Unmount(LowerDir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) { // it is not mounted
		return fmt.Errorf("unmount the image: %w", err)
	}
	r.Process.killAll()
	r.squashfuse = 0
	return r.forgetNetwork()
}

// mountSIF starts squashfuse and waits until it serves the SIF.
func (r *Root) mountSIF() error {
	var before unix.Stat_t
	err := unix.Stat(LowerDir, &before)
	if err != nil {
		return fmt.Errorf("mount the image: %w", err)
	}
	args := []string{r.Squashfuse, "-f", "-o", fmt.Sprintf("offset=%d", r.Offset), r.SIF, LowerDir}
	r.squashfuse, r.serverLog, err = r.Process.startServer(args)
	if err != nil {
		return err
	}
	r.startNetwork()                      // squashfuse starts at the same time
	if err := r.addOthers(); err != nil { // here, too
		return err
	}
	return r.awaitMount(before)
}

// startServer starts a program that serves the container, and returns its output. A signal to the whole job must not
// end it while the command saves its results. libfuse leaves signals that are already ignored
// (lib/fuse_signals.c: set_one_signal_handler), and slirp4netns leaves all.
func (p *Process) startServer(args []string) (pid int, log *tail, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	log = readTail(read)
	defer func() { _ = write.Close() }() // the program has its own; the log ends with that
	null, err := openNull()
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	defer func() { _ = unix.Close(null) }()
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	output := write.Fd()
	pid, err = p.Start(args, &syscall.ProcAttr{Files: []uintptr{uintptr(null), output, output}})
	HandleSignals()
	return pid, log, err
}

func (r *Root) awaitMount(before unix.Stat_t) error {
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for {
		select {
		case d := <-r.Process.Deaths:
			if err := r.Lost(d); err != nil {
				return err
			}
		case <-r.Process.Stop:
			return errStopped
		case <-tick.C:
			var now unix.Stat_t
			switch err := unix.Stat(LowerDir, &now); {
			case err == nil && now.Dev != before.Dev:
				return nil
			case err != nil && !errors.Is(err, unix.ENOTCONN): // ENOTCONN means that squashfuse has just died
				return fmt.Errorf("squashfuse serves the image, and its root cannot be read: %w", err)
			}
		}
	}
}

// Lost returns an error, that the image is gone, if the dead child is its squashfuse.
func (r *Root) Lost(d Death) error {
	if r.private != nil && d.PID == r.private.forwarder {
		r.loseNetwork(d)
		return nil
	}
	if d.PID != r.squashfuse {
		return nil
	}
	how := d.String()
	if output := r.serverLog.String(); output != "" {
		how += ": " + output
	}
	return fmt.Errorf("squashfuse, which serves the image's files, has ended (%s)", how)
}

// MountOverlay mounts the container's root over the image, writable.
func (r *Root) MountOverlay() error {
	if err := checkAttributes(); err != nil {
		return err
	}
	return r.mountOverlay(LowerDir, ".")
}

// mountOverlay mounts an overlay over layers, which has its UpperDir and workDir in a directory. The names have no characters that an
// option may not have.
func (r *Root) mountOverlay(layers, in string) error {
	// upper/ does not outlive the container, so the overlay need not flush it.
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/%s,workdir=%s/%s,userxattr", layers, in, UpperDir, in, workDir)
	err := unix.Mount("overlay", RootDir, "overlay", unix.MS_NODEV, options+",volatile")
	if errors.Is(err, unix.EINVAL) { // before Linux 5.10
		err = unix.Mount("overlay", RootDir, "overlay", unix.MS_NODEV, options)
	}
	if err != nil {
		return overlayError(r.Process.PrivateDir, err)
	}
	openWorkDir(filepath.Join(in, workDir))
	return nil
}

// openWorkDir opens the directories that the kernel has made in workDir, with mode 0 (fs/overlayfs/super.c:
// ovl_create_volatile_dirty). Otherwise the caller would need a program with this namespace's rights to measure and to remove them,
// which takes longer than the start of a container.
func openWorkDir(dir string) {
	for _, name := range []string{"work", "incompat", "volatile", "dirty"} {
		dir = filepath.Join(dir, name)
		if os.Chmod(dir, 0o700) != nil {
			return // it is not there
		}
	}
}

func overlayError(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return container.HostErrorf("this node does not let user namespaces mount overlayfs: that takes Linux 5.11 or RHEL 8.5, "+
			"and no AppArmor or SELinux rule against it (%w)", err)
	case errors.Is(err, syscall.ENODEV):
		return container.HostErrorf("this node's kernel has no overlayfs: its module overlay has to be loaded (%w)", err)
	case errors.Is(err, syscall.EINVAL):
		return container.HostErrorf("the scratch, with %s, is on a file system that overlayfs cannot write to: it has to be on a disk of the node or a tmpfs, "+
			"not on NFS, Lustre, GPFS or another overlay (%w)", dir, err)
	}
	return fmt.Errorf("mount the root's overlay: %w", err)
}

// checkAttributes returns an error if directories of the image have extended attributes that the
// overlay of an ordinary user cannot copy (fs/overlayfs/copy_up.c: ovl_copy_xattr). Such
// directories would not be writable. A SIF that Apptainer made on a host with SELinux has such
// attributes on all files, and squashfuse up to 0.1.105 shows them as trusted.selinux. SIFs of this
// project have none.
func checkAttributes() error {
	for _, dir := range []string{".", "etc", "usr", "tmp"} {
		names := make([]byte, 64<<10) // XATTR_LIST_MAX
		n, err := unix.Llistxattr(filepath.Join(LowerDir, dir), names)
		if err != nil { // it does not exist, or has none
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

// labelError means that an image's files have attributes that an overlay cannot copy.
type labelError struct{ name string }

func (e *labelError) Error() string {
	return fmt.Sprintf("the image's files have attributes (%s) that an overlay of an ordinary user cannot copy, "+
		"such as a host with SELinux gives them; mksquashfs -no-xattrs leaves them out", e.name)
}
