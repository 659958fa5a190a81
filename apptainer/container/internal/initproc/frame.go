package initproc

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/firstproc"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/seccomp"
)

// Frame has the parts that containers whose first process package firstproc starts have in common, apart from their image.
type Frame struct {
	// HiddenFiles and HiddenDirs are those of Hidden below /proc, and ReadOnlyDirs the directories there that a container must not
	// write to.
	HiddenFiles, HiddenDirs, ReadOnlyDirs []string
	// Filter is the filter of a command's system calls.
	Filter []byte
	// OpenFiles is the limit of a command's open files.
	OpenFiles unix.Rlimit

	mapped uint64 // see keepBack
}

// MakeFrame makes the frame of the container of an init of its own, unless bubblewrap has to set that up: where the kernel lacks what
// package firstproc needs, and where RootDir is no mount.
func (r *Root) MakeFrame() (err error) {
	if r.Process.keeper == nil && r.squashfuse != 0 && firstproc.Supported() == nil {
		var limit unix.Rlimit
		if limit, err = openFilesOf(r.squashfuse); err == nil {
			r.Process.frame, err = makeFrame(limit)
		}
	}
	return err
}

// openFilesOf returns the limit of the open files of a program that this process has started. Go raises this process's own.
func openFilesOf(child int) (limit unix.Rlimit, err error) {
	if err := unix.Prlimit(child, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		return limit, os.NewSyscallError("prlimit", err)
	}
	return limit, nil
}

// makeFrame makes a frame, and makes this process's /sys as a container shows it.
func makeFrame(openFiles unix.Rlimit) (*Frame, error) {
	f := &Frame{OpenFiles: openFiles}
	files, dirs := Hidden()
	f.HiddenFiles = files
	var err error
	if f.HiddenDirs, err = HideSys(dirs); err != nil {
		return nil, err
	}
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/sys", unix.AT_RECURSIVE, &attributes); err != nil {
		return nil, fmt.Errorf("restrict the mount /sys: %w", err)
	}
	f.ReadOnlyDirs = []string{Settings}
	for _, name := range []string{"/proc/sysrq-trigger", "/proc/irq", "/proc/bus"} { // root of the host may write to them
		if unix.Access(name, unix.W_OK) == nil {
			f.ReadOnlyDirs = append(f.ReadOnlyDirs, name)
		}
	}
	if f.Filter, err = seccomp.Program(seccomp.OnlyRoot()); err != nil {
		return nil, err
	}
	return f, nil
}

// keepBack keeps the heap, as far as it has grown by now, from the next first process.
func (f *Frame) keepBack() (err error) {
	f.mapped, err = firstproc.KeepBack(f.mapped)
	return err
}

// BindAt shows source, with the mounts below it, at a mount point, with more attributes (mount_setattr(2)).
func BindAt(source, target string, attributes uint64) error {
	err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
	if err == nil {
		err = unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attributes})
	}
	if err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	return nil
}

// Frame returns the frame of the process's container, or nil if bubblewrap has to set it up.
func (p *Process) Frame() *Frame {
	if p.keeper == nil {
		return p.frame
	}
	return p.keeper.frame
}

// StartFirst starts the first process of a container with a Frame, and its command, with MaxProcesses. Deaths receives its end, which
// is that of all processes of the container.
func (p *Process) StartFirst(s *firstproc.Setup, c firstproc.Command, namespaces uintptr) (first *firstproc.First, err error) {
	if k := p.keeper; k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		defer func() {
			k.noteChild() // also one that was started and then failed
			if err == nil {
				p.first, k.first = first, first.PID
			}
		}()
	}
	_, err = p.bounded(true, func(uids, gids []syscall.SysProcIDMap) (int, error) {
		c.UIDs, c.GIDs = uids, gids
		if first, err = s.Start(c, namespaces); err != nil {
			return 0, err
		}
		return first.PID, nil
	})
	return first, err
}
