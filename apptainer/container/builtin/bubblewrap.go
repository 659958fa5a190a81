package builtin

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/seccomp"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

// bubblewrapArgs are bubblewrap's arguments.
type bubblewrapArgs struct {
	options []string // passed in a file, because they may be many and contain secrets
	command []string
	// program and order are open for ExecMain; nil if bubblewrap itself executes the command.
	program, order *os.File
}

func (a *bubblewrapArgs) add(options ...string) { a.options = append(a.options, options...) }

// addIsolation isolates the container. The init has entered a private network already. The container keeps
// the capabilities of Docker's containers, in its own user namespace. With more, a process could make
// read-only binds writable.
func (a *bubblewrapArgs) addIsolation(network container.Network) {
	a.add("--unshare-pid", "--unshare-ipc", "--new-session", "--cap-drop", "ALL")
	if network == container.NoNetwork {
		a.add("--unshare-net")
	}
	for _, name := range enter.Capabilities() {
		a.add("--cap-add", name)
	}
}

// hideKernel makes the kernel's settings read-only, and mounts something empty over its files about the whole
// machine. Those of /sys are hidden in this namespace, which takes less time.
func (a *bubblewrapArgs) hideKernel() error {
	files, dirs := initproc.Hidden()
	dirs, err := initproc.HideSys(dirs)
	if err != nil {
		return err
	}
	a.add("--ro-bind", initproc.Settings, initproc.Settings)
	for _, name := range files {
		a.add("--dev-bind", os.DevNull, name)
	}
	for _, name := range dirs {
		a.add("--tmpfs", name, "--remount-ro", name)
	}
	return nil
}

// Descriptors that bubblewrap inherits.
const (
	bubblewrapArgsFD   = 3
	bubblewrapStatusFD = 4
	bubblewrapFilterFD = 5
)

// bubblewrap is a running bwrap.
type bubblewrap struct {
	status bubblewrapStatus // complete once ended is closed
	ended  <-chan struct{}  // is closed at its end
}

// bubblewrapStatus is bubblewrap's report about itself.
type bubblewrapStatus struct {
	pid1  int  // the process id of the container's pid 1; 0 if there was none
	began bool // the command has run, and bubblewrap's exit status is the command's
}

// startBubblewrap starts the container. It does not pass --die-with-parent: the container ends with
// the init without it, and if a signal to the whole job ends bubblewrap's outer process, the
// command may still save its results.
func (c *containerInit) startBubblewrap(args bubblewrapArgs) (*bubblewrap, error) {
	// A zero in an option would begin a new option.
	for _, argument := range slices.Concat(args.options, args.command) {
		if strings.ContainsRune(argument, 0) {
			return nil, container.RequestErrorf("start bubblewrap: %q holds a zero byte", argument)
		}
	}
	options, err := memoryFile([]byte(strings.Join(args.options, "\x00") + "\x00"))
	if err != nil {
		return nil, fmt.Errorf("start bubblewrap: %w", err)
	}
	defer func() { _ = options.Close() }()
	filter, err := commandFilter()
	if err != nil {
		return nil, fmt.Errorf("start bubblewrap: %w", err)
	}
	defer func() { _ = filter.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start bubblewrap: %w", err)
	}
	defer func() { _ = w.Close() }()
	b := &bubblewrap{}
	files := append(c.process.Stdio(0), options.Fd(), w.Fd(), filter.Fd())
	if args.order != nil {
		defer func() { _ = errors.Join(args.program.Close(), args.order.Close()) }()
		files = append(files, args.program.Fd(), args.order.Fd())
	}
	argv := []string{c.root.Bubblewrap, "--args", strconv.Itoa(bubblewrapArgsFD), "--json-status-fd", strconv.Itoa(bubblewrapStatusFD), "--seccomp", strconv.Itoa(bubblewrapFilterFD), "--"}
	c.bubblewrap, err = c.process.StartBounded(append(argv, args.command...), &syscall.ProcAttr{
		Env:   []string{},
		Files: files,
	}, true)
	if errors.Is(err, unix.E2BIG) {
		return nil, &container.RequestError{Err: err} // execve(2): an argument has at most 128 KiB
	}
	if err != nil {
		return nil, err
	}
	b.ended = background.Go(func() { b.readStatus(r) })
	return b, nil
}

// commandFilter returns a file with the filter of the command's system calls. bubblewrap installs it
// after its own mounts, in the container's pid 1 and in the command (bubblewrap.c:
// seccomp_programs_apply).
func commandFilter() (*os.File, error) {
	program, err := seccomp.Program(seccomp.OnlyRoot())
	if err != nil {
		return nil, err
	}
	return memoryFile(program)
}

// memoryFile returns a file in memory with this content, ready to be read.
func memoryFile(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("bubblewrap", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "bubblewrap")
	_, err = f.Write(content)
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write a file in memory: %w", err)
	}
	return f, nil
}

// readStatus reads the output of bwrap(1) for --json-status-fd: the process id of its child, and
// the command's exit status if there was a command.
func (b *bubblewrap) readStatus(r *os.File) {
	defer func() { _ = r.Close() }()
	status := &b.status
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var line struct {
			ChildPID *int `json:"child-pid"`
			ExitCode *int `json:"exit-code"`
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		if line.ChildPID != nil {
			status.pid1 = *line.ChildPID
		}
		status.began = status.began || line.ExitCode != nil
	}
}

// supervise waits for the command's end. After Stop it sends TERM, and ends after KillGrace.
func (c *containerInit) supervise(b *bubblewrap) (code int, err error) {
	dead := map[int]syscall.WaitStatus{}
	stop, stopping := c.process.Stop, false
	var kill <-chan time.Time
	var status *bubblewrapStatus // set when bubblewrap is dead
	for {
		select {
		case <-stop:
			stop, stopping = nil, true
			timer := time.NewTimer(c.process.KillGrace)
			defer timer.Stop()
			kill = timer.C
			terminate()
		case <-kill:
			if w, ended := dead[c.bubblewrap]; ended && w.Exited() {
				return w.ExitStatus(), nil
			}
			return 128 + int(syscall.SIGKILL), nil
		case d, ok := <-c.process.Deaths:
			if !ok {
				return 0, errors.New("the end of bubblewrap was missed")
			}
			if err := c.root.Lost(d); err != nil {
				return 0, err
			}
			dead[d.PID] = d.Status
		}
		outer, outerDead := dead[c.bubblewrap]
		if !outerDead {
			continue // pid 1 may be reaped before it
		}
		if status == nil {
			<-b.ended
			status = &b.status
		}
		pid1, pid1Dead := dead[status.pid1]
		pid1Dead = pid1Dead || status.pid1 == 0
		switch {
		case outer.Exited() && !status.began:
			return explainFailure(c.process.StderrHead())
		case outer.Exited() && (!stopping || pid1Dead || initproc.IsGone(status.pid1)): // bubblewrap may have reaped it
			return outer.ExitStatus(), nil
		case outer.Signaled() && status.pid1 == 0:
			return 0, container.NotBegun(fmt.Errorf("bubblewrap was ended by a signal: %v", outer.Signal()))
		case outer.Signaled() && pid1Dead && pid1.Signaled():
			return 128 + int(pid1.Signal()), nil
		case outer.Signaled() && pid1Dead:
			return pid1.ExitStatus(), nil // the command's (bubblewrap.c: do_init)
		}
	}
}

// explainFailure returns the reason in bubblewrap's message why it did not begin the command. If the
// program could not be executed, it returns an exit status of the command, as a shell would.
func explainFailure(message string) (code int, err error) {
	if strings.Contains(message, "execvp ") {
		if strings.Contains(strings.ToLower(message), unix.ENOENT.Error()) {
			return 127, nil
		}
		return 126, nil
	}
	if message == "" {
		message = "see the command's standard error"
	}
	if strings.Contains(message, "Can't chdir to ") {
		return 0, container.RequestErrorf("working directory: %s", message)
	}
	return 0, container.HostErrorf("bubblewrap could not set the container up: %s", message)
}

// terminate sends TERM once to every process of the container except its pid 1, which would ignore
// it. Later rounds reach processes that started during earlier ones.
func terminate() {
	signalled := map[int]bool{}
	for range 10 {
		before := len(signalled)
		for _, pid := range containerProcesses() {
			if !signalled[pid] {
				signalled[pid] = true
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		if len(signalled) == before {
			return
		}
	}
}

// containerProcesses lists the processes of the PID namespace below the init's, except for the
// first one.
func containerProcesses() []int {
	pids, err := procstat.List("/proc")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(pids, func(pid int) bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return true // it has ended
		}
		// proc_pid_status(5): the process ids from the namespace of this /proc to the innermost.
		_, ids, _ := strings.Cut(string(status), "\nNSpid:")
		ids, _, _ = strings.Cut(ids, "\n")
		levels := strings.Fields(ids)
		return len(levels) < 2 || levels[1] == "1"
	})
}
