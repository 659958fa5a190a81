package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/connect"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

// errNotRunning means that there is no such container.
var errNotRunning = errors.New("the container does not run any more")

// Dial connects to a TCP port on localhost in a running container of this user on this host, with
// any network. In a container with the host's network, it reaches only ports on which a process of
// the container listens. runtime is the runtime that runs the container, and at is the argument of
// the container's OnStart. ctx limits only the dialing. The connection also has a method
// CloseWrite() error.
func (r Runner) Dial(ctx context.Context, runtime runtimes.Name, at container.Running, port int) (io.ReadWriteCloser, error) {
	conn, err := r.dial(ctx, runtime, at, port)
	if err != nil {
		return nil, fmt.Errorf("connect to a container: %w", err)
	}
	return conn, nil
}

func (r Runner) dial(ctx context.Context, runtime runtimes.Name, at container.Running, port int) (*connect.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("%d is not a port", port)
	}
	inside := []string{connect.Command, strconv.Itoa(port)}
	if runtime.IsEngine() {
		return r.dialByEngine(ctx, runtime, at.Name, inside)
	}
	if at.PID <= 0 || container.ProcessStart(at.PID) != at.Started {
		return nil, errNotRunning
	}
	if at.Network {
		addresses, err := ownAddresses(at.PID, port)
		if err != nil {
			return nil, err
		}
		if len(addresses) == 0 {
			return nil, fmt.Errorf("nothing in the bundle listens on port %d", port)
		}
		return connect.Dial(ctx, addresses, port)
	}
	pid, err := findIsolated(at.PID)
	if err != nil {
		return nil, err
	}
	owner, err := findOwner(at.PID, pid)
	if err != nil {
		return nil, err
	}
	nsenter, err := initproc.FindProgram("util-linux", "nsenter")
	if err != nil {
		return nil, err
	}
	helper, err := enter.HelperPath(r.Helper)
	if err != nil {
		return nil, err
	}
	args := []string{
		nsenter, fmt.Sprintf("--user=/proc/%d/ns/user", owner), fmt.Sprintf("--net=/proc/%d/ns/net", pid), "--preserve-credentials", "--", helper,
	}
	return connect.Start(ctx, append(args, inside...), nil)
}

func (r Runner) dialByEngine(ctx context.Context, runtime runtimes.Name, name string, inside []string) (*connect.Conn, error) {
	if name == "" {
		return nil, errNotRunning
	}
	choice, err := container.Choose(runtime, Look())
	if err != nil {
		return nil, err
	}
	args := []string{choice.Program, "exec", "--interactive", name, enter.ProgramPath}
	conn, err := connect.Start(ctx, append(args, inside...), r.Env)
	if err != nil {
		lower := strings.ToLower(err.Error())
		for _, gone := range []string{"no such container", "is not running", "no container with name", "state improper"} {
			if strings.Contains(lower, gone) {
				return nil, errNotRunning
			}
		}
	}
	return conn, err
}

// findOwner returns a process of a container's tree in the user namespace that owns the network of another one
// (ioctl_nsfs(2)). The init has made a private network; bubblewrap, perhaps in a user namespace below, makes the other.
func findOwner(root, pid int) (owner int, err error) {
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return 0, errNotRunning
	}
	defer func() { _ = network.Close() }() // it was only asked
	fd, err := unix.IoctlRetInt(int(network.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return 0, fmt.Errorf("find the owner of the container's network: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var want unix.Stat_t
	if err := unix.Fstat(fd, &want); err != nil {
		return 0, fmt.Errorf("find the owner of the container's network: %w", err)
	}
	for _, p := range procstat.Tree("/proc", root) {
		var have unix.Stat_t
		if unix.Stat(fmt.Sprintf("/proc/%d/ns/user", p.PID), &have) == nil && have.Dev == want.Dev && have.Ino == want.Ino {
			return p.PID, nil
		}
	}
	return 0, errors.New("its network cannot be entered by this user")
}

// findIsolated returns the outermost process of a container's tree with a network other than this
// process's.
func findIsolated(root int) (pid int, err error) {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return 0, err
	}
	for _, p := range procstat.Tree("/proc", root) {
		network, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.PID))
		if err == nil && network != own {
			return p.PID, nil
		}
	}
	return 0, errors.New("its network cannot be entered by this user, or is not set up yet")
}
