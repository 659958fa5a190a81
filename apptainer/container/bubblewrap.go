package container

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bubblewrapArgs is what bubblewrap is started with.
type bubblewrapArgs struct {
	options []string // handed over in a file: they may be many and hold secrets
	command []string
}

func (a *bubblewrapArgs) add(options ...string) { a.options = append(a.options, options...) }

// addIsolation shuts the container off. It keeps those capabilities over its
// own user namespace that Docker's containers have: with more it could, for
// one, make read-only binds writable.
func (a *bubblewrapArgs) addIsolation(network bool) {
	a.add("--unshare-pid", "--unshare-ipc", "--new-session", "--cap-drop", "ALL")
	if !network {
		a.add("--unshare-net")
	}
	for _, c := range capabilities() {
		a.add("--cap-add", "CAP_"+c.name)
	}
}

// Descriptors that bubblewrap inherits.
const (
	bubblewrapArgsFD   = 3
	bubblewrapStatusFD = 4
)

// bubblewrap is a running one.
type bubblewrap struct {
	status    chan bubblewrapStatus // receives one, at its end
	stderrLen int64                 // of our standard error when it was started
}

// bubblewrapStatus is what it said of itself.
type bubblewrapStatus struct {
	pid1  int  // the process id of the container's pid 1, 0 when there was none
	began bool // the command has run, and bubblewrap's exit status is its
}

// startBubblewrap starts the container. It does not ask bubblewrap to die with
// its parent: the container lives and dies with init, and when a signal to the
// whole job ends bubblewrap's outer process, the command may still save what
// it has.
func (c *container) startBubblewrap(args bubblewrapArgs) (*bubblewrap, error) {
	if i := slices.IndexFunc(args.options, hasZero); i >= 0 { // what follows it would be an option of its own
		return nil, fmt.Errorf("start bubblewrap: %q holds a zero byte", args.options[i])
	}
	options, err := memoryFile(strings.Join(args.options, "\x00") + "\x00")
	if err != nil {
		return nil, fmt.Errorf("start bubblewrap: %w", err)
	}
	defer func() { _ = options.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start bubblewrap: %w", err)
	}
	defer func() { _ = w.Close() }()
	b := &bubblewrap{status: make(chan bubblewrapStatus, 1), stderrLen: stderrLen()}
	argv := []string{c.Bubblewrap, "--args", strconv.Itoa(bubblewrapArgsFD), "--json-status-fd", strconv.Itoa(bubblewrapStatusFD), "--"}
	c.bubblewrap, err = syscall.ForkExec(c.Bubblewrap, append(argv, args.command...), &syscall.ProcAttr{ //nolint:gosec // to run what it is told is what a container is for
		Env:   []string{},
		Files: []uintptr{0, 1, 2, options.Fd(), w.Fd()},
	})
	if err != nil {
		return nil, fmt.Errorf("start bubblewrap: %w", err)
	}
	if c.squashfuse == 0 { // there was no child before
		go c.reap()
	}
	go b.readStatus(r)
	return b, nil
}

func hasZero(s string) bool { return strings.ContainsRune(s, 0) }

// memoryFile holds text in memory, ready to be read.
func memoryFile(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("options", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "options")
	_, err = f.WriteString(text)
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write a file in memory: %w", err)
	}
	return f, nil
}

// readStatus reads what bwrap(1) writes for --json-status-fd: the process id of
// its child, and the command's exit status if there was a command.
func (b *bubblewrap) readStatus(r *os.File) {
	defer func() { _ = r.Close() }()
	var status bubblewrapStatus
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
	b.status <- status
}

// stderrLen is how much our standard error holds, where that is a file.
func stderrLen() int64 {
	info, err := os.Stderr.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// complaint is what was written to our standard error since it was as long as
// that, where it is a file.
func complaint(since int64) string {
	f, err := os.Open("/proc/self/fd/2")
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	return tailFrom(f, since)
}

// tailFrom is the beginning of what a file holds behind an offset.
func tailFrom(f *os.File, offset int64) string {
	said := make([]byte, tailBytes)
	n, err := f.ReadAt(said, offset)
	if n == 0 && err != nil {
		return ""
	}
	return strings.TrimSpace(string(said[:n]))
}

// supervise waits for the end of the command.
func (c *container) supervise(b *bubblewrap) (code int, err error) {
	dead := map[int]syscall.WaitStatus{}
	stop, stopping := c.stop, false
	var kill <-chan time.Time
	var status *bubblewrapStatus // once bubblewrap is dead
	for {
		select {
		case <-stop:
			stop, stopping = nil, true
			timer := time.NewTimer(c.Grace)
			defer timer.Stop()
			kill = timer.C
			c.terminate()
		case <-kill:
			if w, ended := dead[c.bubblewrap]; ended && w.Exited() {
				return w.ExitStatus(), nil
			}
			return 128 + int(syscall.SIGKILL), nil
		case d, ok := <-c.deaths:
			switch {
			case !ok:
				return 0, errors.New("bubblewrap ended unseen")
			case d.pid == c.squashfuse:
				return 0, c.lost(d)
			}
			dead[d.pid] = d.status
		case <-c.imageLost:
			return 0, errImageLost
		}
		outer, outerDead := dead[c.bubblewrap]
		if !outerDead {
			continue // pid 1 may be reaped before it
		}
		if status == nil {
			said := <-b.status
			status = &said
		}
		pid1, pid1Dead := dead[status.pid1]
		pid1Dead = pid1Dead || status.pid1 == 0
		switch {
		case outer.Exited() && !status.began:
			return c.failed(b)
		case outer.Exited() && (!stopping || pid1Dead || isGone(status.pid1)): // bubblewrap may have reaped it
			return outer.ExitStatus(), nil
		case outer.Signaled() && status.pid1 == 0:
			return 0, fmt.Errorf("bubblewrap was ended by a signal: %v", outer.Signal())
		case outer.Signaled() && pid1Dead && pid1.Signaled():
			return 128 + int(pid1.Signal()), nil
		case outer.Signaled() && pid1Dead:
			return pid1.ExitStatus(), nil // which is the command's, as bubblewrap.c: do_init has it
		}
	}
}

// isGone says whether there is no such process, not even a dead one.
func isGone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), unix.ESRCH) }

// failed says why bubblewrap did not begin the command. A program that cannot
// be executed is the command's own fault; status and words are a shell's.
func (c *container) failed(b *bubblewrap) (code int, err error) {
	said := complaint(b.stderrLen)
	if strings.Contains(said, "execvp ") {
		if strings.Contains(strings.ToLower(said), unix.ENOENT.Error()) {
			return 127, nil
		}
		return 126, nil
	}
	if said == "" {
		said = "its message is on the command's standard error"
	}
	return 0, lacking("bubblewrap could not set the container up: %s", said)
}

// terminate sends TERM once to every process of the container but its pid 1,
// which would ignore it. Processes that are born meanwhile are found in a
// further round.
func (c *container) terminate() {
	told := map[int]bool{}
	for range 10 {
		before := len(told)
		for _, pid := range containerProcesses() {
			if !told[pid] {
				told[pid] = true
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		if len(told) == before {
			return
		}
	}
}

// containerProcesses lists the processes in a pid namespace below init's,
// without the first there.
func containerProcesses() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		status, err := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		if err != nil {
			continue // it has ended
		}
		// proc_pid_status(5): the process ids from the namespace of this /proc
		// to the innermost.
		_, ids, _ := strings.Cut(string(status), "\nNSpid:")
		ids, _, _ = strings.Cut(ids, "\n")
		if levels := strings.Fields(ids); len(levels) > 1 && levels[1] != "1" {
			pids = append(pids, pid)
		}
	}
	return pids
}
