package builtin

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/firstproc"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
)

// direct sets up a container with a Frame as bubblewrap does with bubblewrapArgs, by system calls. The calling thread makes all mounts
// below the root but those of /proc, which its first process has to make.
type direct struct {
	*containerInit

	frame *initproc.Frame
	setup firstproc.Setup
}

// Attributes of mounts, as bubblewrap sets them.
const (
	ofRoot    = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	ofDevices = unix.MOUNT_ATTR_NOSUID
)

// inRoot returns the path, from the private directory, of a path in the container. It follows no links.
func inRoot(name string) string { return filepath.Join(initproc.RootDir, name) }

// runDirect runs the container.
func (c *containerInit) runDirect() (code int, err error) {
	d := &direct{containerInit: c, frame: c.process.Frame()}
	defer d.setup.Close()
	command, err := c.command()
	if err != nil {
		return 0, err
	}
	binds, err := c.prepareBinds()
	if err != nil {
		return 0, err
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, initproc.RootDir, 0, &unix.MountAttr{Attr_set: ofRoot}); err != nil {
		return 0, fmt.Errorf("restrict the root's mount: %w", err)
	}
	if err := d.makeDev(); err != nil {
		return 0, err
	}
	if err := unix.Mount("/sys", inRoot("/sys"), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return 0, fmt.Errorf("mount /sys: %w", err)
	}
	if d.root.Network == container.NoNetwork {
		if err := d.setup.RaiseLoopback(); err != nil {
			return 0, err
		}
	}
	// The new root must not be locked, as it is in a user namespace of its own (mount_namespaces(7)).
	d.setup.Mount(initproc.RootDir, initproc.RootDir, "", unix.MS_BIND|unix.MS_REC, "")
	d.setup.Mount("proc", inRoot("/proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	d.hideKernel()
	for _, b := range binds {
		if err := d.bind(b); err != nil {
			return 0, err
		}
	}
	d.setup.EnterRoot(initproc.RootDir, cmp.Or(c.Dir, "/"))
	d.confine()
	c.process.Begin() // a failure from here on is rare
	return d.start(command)
}

// makeDev makes the container's /dev.
func (d *direct) makeDev() error {
	dev := inRoot("/dev")
	if err := unix.Mount("tmpfs", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for _, name := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"} {
		err := unix.Mknod(inRoot(name), unix.S_IFREG|0o644, 0)
		if err == nil {
			err = unix.Mount(name, inRoot(name), "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("bind %s: %w", name, err)
		}
	}
	for _, name := range d.Devices {
		if err := bindInto(name, name, ofDevices); err != nil {
			return err
		}
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, dev, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: ofDevices}); err != nil {
		return fmt.Errorf("restrict the mounts of /dev: %w", err)
	}
	for _, dir := range []string{"shm", "pts"} {
		if err := os.Mkdir(filepath.Join(dev, dir), 0o755); err != nil {
			return fmt.Errorf("make /dev: %w", err)
		}
	}
	for _, link := range [][2]string{
		{"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}, {"/proc/self/fd", "fd"}, {"/proc/kcore", "core"}, {"pts/ptmx", "ptmx"},
	} {
		if err := os.Symlink(link[0], filepath.Join(dev, link[1])); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make /dev: %w", err)
		}
	}
	if err := unix.Mount("devpts", filepath.Join(dev, "pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	return d.root.MountShm(filepath.Join(dev, "shm"))
}

// hideKernel makes the kernel's settings read-only, and hides its files about the whole machine.
func (d *direct) hideKernel() {
	for _, name := range d.frame.ReadOnlyDirs {
		d.setup.Mount(inRoot(name), inRoot(name), "", unix.MS_BIND|unix.MS_REC, "")
		d.setup.SetAttributes(inRoot(name), ofRoot|unix.MOUNT_ATTR_RDONLY)
	}
	for _, name := range d.frame.HiddenFiles {
		d.setup.Mount(inRoot(os.DevNull), inRoot(name), "", unix.MS_BIND, "")
	}
	for _, name := range d.frame.HiddenDirs {
		d.setup.Mount("tmpfs", inRoot(name), "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "mode=0755")
	}
}

// bind shows a bind whose target is resolved.
func (d *direct) bind(b container.Bind) error {
	attributes := uint64(ofRoot)
	if b.ReadOnly {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	if subpath.Within(b.Target, "/proc") {
		d.setup.Mount(b.Source, inRoot(b.Target), "", unix.MS_BIND|unix.MS_REC, "")
		d.setup.SetAttributes(inRoot(b.Target), attributes)
		return nil
	}
	return bindInto(b.Source, b.Target, attributes)
}

// bindInto shows a file or directory in the container. MakeTargets has made the mount points but those in /dev.
func bindInto(source, target string, attributes uint64) error {
	at := inRoot(target)
	if subpath.Within(target, "/dev") {
		if err := makeDevice(source, at); err != nil {
			return err
		}
	}
	return initproc.BindAt(source, at, attributes)
}

// makeDevice makes a mount point in the container's /dev. Nobody else writes there yet. It must not follow a link such as /dev/stdout.
func makeDevice(source, at string) error {
	source = filepath.Clean(source)
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	for dir := filepath.Dir(at); dir != "."; dir = filepath.Dir(dir) {
		if there, err := os.Lstat(dir); err == nil && !there.IsDir() {
			return container.RequestErrorf("bind %s: %s is no directory of the container", source, strings.TrimPrefix(dir, initproc.RootDir))
		}
	}
	if there, err := os.Lstat(at); err == nil {
		if there.IsDir() != info.IsDir() || there.Mode()&os.ModeSymlink != 0 {
			return container.RequestErrorf("bind %s: the container has something of another kind there", source)
		}
		return nil
	}
	if err := initproc.MakeMountPoint(at, info.IsDir()); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	return nil
}

// confine gives the container fewer rights; its first process has a session of its own.
func (d *direct) confine() {
	d.setup.LimitFiles(d.frame.OpenFiles)
	d.setup.Call("make a session", unix.SYS_SETSID)
	d.setup.KeepCapabilities(enter.Capabilities())
	d.setup.Filter(d.frame.Filter)
}

// start starts the command, and waits for its end.
func (d *direct) start(args []string) (code int, err error) {
	command := firstproc.Command{Args: args, Env: withVariable(d.Env, "PWD", cmp.Or(d.Dir, "/")), Programs: programs(args[0], d.Env)}
	copy(command.Files[:], d.process.Stdio(0))
	namespaces := unix.CLONE_NEWNS | unix.CLONE_NEWIPC
	if d.root.Network == container.NoNetwork {
		namespaces |= unix.CLONE_NEWNET
	}
	first, err := d.process.StartFirst(&d.setup, command, uintptr(namespaces))
	if err != nil {
		return 0, container.NotBegun(fmt.Errorf("start the command: %w", err))
	}
	code, err = d.await(first)
	if err != nil {
		return code, err
	}
	switch what, failed := first.Failure(); {
	case failed == nil:
		return code, nil
	case what == firstproc.EnterDir:
		return 0, container.RequestErrorf("working directory: %s: %w", d.Dir, failed)
	case what != "":
		return 0, container.HostErrorf("the container could not be set up: %s: %w", what, failed)
	case errors.Is(failed, unix.E2BIG): // execve(2): an argument has at most 128 KiB
		return 0, container.RequestErrorf("start %s: %w", args[0], failed)
	default:
		return d.notExecuted(args[0], failed), nil
	}
}

// notExecuted writes the reason why a program could not be executed to the standard error, and returns a shell's exit status for it.
func (d *direct) notExecuted(name string, err error) (code int) {
	_, _ = unix.Write(int(d.process.Stdio(0)[2]), []byte(fmt.Sprintf("%s: %v\n", name, err)))
	if errors.Is(err, unix.ENOENT) {
		return 127
	}
	return 126
}

// await waits for the end of the first process. After Stop it sends TERM, and ends after KillGrace.
func (d *direct) await(first *firstproc.First) (code int, err error) {
	stop := d.process.Stop
	var kill <-chan time.Time
	for {
		select {
		case <-stop:
			stop = nil
			timer := time.NewTimer(d.process.KillGrace)
			defer timer.Stop()
			kill = timer.C
			first.Tell() // first: a command that terminate does not see yet ends by this
			terminate()
		case <-kill:
			if code, ended := first.Code(); ended {
				return code, nil
			}
			return 128 + int(syscall.SIGKILL), nil
		case death, ok := <-d.process.Deaths:
			code, ended := first.Code()
			switch {
			case !ok:
				return 0, errors.New("the end of the container was missed")
			case death.PID == first.PID && ended:
				return code, nil
			case death.PID == first.PID && first.Silent():
				return 0, container.HostErrorf("the container's first process ended before the command: %v", death)
			case death.PID == first.PID && death.Status.Signaled():
				return 128 + int(death.Status.Signal()), nil
			case death.PID == first.PID: // Failure has the reason
				return death.Status.ExitStatus(), nil
			}
			if err := d.root.Lost(death); err != nil {
				return 0, err
			}
		}
	}
}

// withVariable returns an environment with a variable in place of those of this name.
func withVariable(env []string, name, value string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(assignment string) bool { return strings.HasPrefix(assignment, name+"=") })
	return append(env, name+"="+value)
}

// programs returns the paths to try for a program, as execvp(3) does. An empty name has none.
func programs(name string, env []string) (paths []string) {
	if name == "" {
		return nil
	}
	if strings.Contains(name, "/") {
		return []string{name}
	}
	search := "/bin:/usr/bin"
	for _, assignment := range env {
		if value, ok := strings.CutPrefix(assignment, "PATH="); ok {
			search = value
		}
	}
	for dir := range strings.SplitSeq(search, ":") {
		if dir != "" { // otherwise it is in the working directory
			dir += "/"
		}
		paths = append(paths, dir+name)
	}
	return paths
}
