package firstproc

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Supported returns an error if this kernel lacks a system call that a Setup needs, or a filter forbids it: close_range(2) of Linux
// 5.9, and mount_setattr(2) of Linux 5.12.
func Supported() error {
	_, _, errno := unix.Syscall6(unix.SYS_MOUNT_SETATTR, at(-1), 0, 0, 0, 0, 0) // its arguments are wrong
	if errno != unix.EINVAL {
		return os.NewSyscallError("mount_setattr", errno)
	}
	return os.NewSyscallError("close_range", unix.CloseRange(1<<30, 1<<30, 0))
}

// Command is the command of a container.
type Command struct {
	// Programs are paths in the container. The first one that is there is executed, as by execvp(3): by /bin/sh if it is a script
	// without "#!". If there are none, the program is not there.
	Programs  []string
	Args, Env []string
	// Files are its standard input, output and error. No number is that of an earlier one's place, or 3.
	Files [3]uintptr
	// UIDs and GIDs, if any, are the ids of a new user namespace.
	UIDs, GIDs []syscall.SysProcIDMap
}

// First is a running first process.
type First struct {
	PID int

	what   []string
	told   []byte  // a page that is shared with the first process; see image.told
	report int     // -1 after Close
	heard  bool    // it has sent a message
	failed message // setUpFailed or notExecuted
	ended  message // commandEnded
	last   message // allEnded
}

// Start starts the first process and the command, in a new PID namespace and other new ones (clone(2)). The calling goroutine is locked
// to its thread. A zero byte in a text is an error. After an error Start may be called again.
func (s *Setup) Start(c Command, namespaces uintptr) (*First, error) {
	f := &First{report: -1}
	if err := f.start(s, c, namespaces|unix.CLONE_NEWPID); err != nil { // a new one, because first kills all processes that it sees
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *First) start(s *Setup, c Command, namespaces uintptr) (err error) {
	pageBytes := os.Getpagesize()
	if f.told, err = unix.Mmap(-1, 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	var ends, mapped [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return os.NewSyscallError("pipe2", err)
	}
	defer func() { _ = unix.Close(ends[1]) }() // the first process has its own
	f.report = ends[0]
	wait := -1
	if len(c.UIDs) > 0 {
		namespaces |= unix.CLONE_NEWUSER
		if err := unix.Pipe2(mapped[:], unix.O_CLOEXEC); err != nil {
			return os.NewSyscallError("pipe2", err)
		}
		defer func() { _, _ = unix.Close(mapped[0]), unix.Close(mapped[1]) }()
		wait = mapped[0]
	}
	var calls []call
	calls, f.what = s.begin(c.Files, ends[1], wait)
	m := put(&s.memory, image{flags: namespaces, page: uintptr(pageBytes), told: f.toldWord(), calls: putAll(&s.memory, calls)})
	m.putCommand(&s.memory, c)
	if s.memory.err != nil {
		return s.memory.err
	}
	if f.PID, err = m.forkBlocked(); err == nil && wait >= 0 {
		if err = giveIDs(f.PID, c, mapped[1]); err != nil {
			_ = unix.Kill(f.PID, unix.SIGKILL)
		}
	}
	if err != nil {
		return fmt.Errorf("make the container's namespaces: %w", err)
	}
	return nil
}

// putCommand puts a command into an image.
func (m *image) putCommand(at *memory, c Command) {
	programs := make([]uintptr, 0, len(c.Programs))
	for _, path := range c.Programs {
		programs = append(programs, at.address(path))
	}
	args, env := cStrings(at, c.Args), cStrings(at, c.Env)
	m.programs, m.argv, m.env = putAll(at, programs), addressOf(args), addressOf(env)
	m.script = putAll(at, append([]uintptr{at.address("/bin/sh"), 0}, args[min(1, len(c.Args)):]...))
}

// cStrings returns texts as execve(2) takes them.
func cStrings(at *memory, texts []string) []uintptr {
	pointers := make([]uintptr, len(texts)+1)
	for i, text := range texts {
		pointers[i] = at.address(text)
	}
	return putAll(at, pointers)
}

func addressOf(all []uintptr) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(all))) }

// forkBlocked forks while all signals of the thread are blocked.
func (m *image) forkBlocked() (pid int, err error) {
	var all, old unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		return 0, os.NewSyscallError("sigprocmask", err)
	}
	syscall.ForkLock.Lock() // also against a fork of the standard library
	forked, errno := m.fork()
	syscall.ForkLock.Unlock()
	err = os.NewSyscallError("sigprocmask", unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil))
	if errno != 0 {
		return 0, os.NewSyscallError("clone", errno)
	}
	if err != nil {
		_ = unix.Kill(int(forked), unix.SIGKILL)
	}
	return int(forked), err
}

// giveIDs gives a process in a new user namespace its ids. It waits for them at a pipe.
func giveIDs(pid int, c Command, pipe int) error {
	for file, ids := range map[string][]syscall.SysProcIDMap{"uid_map": c.UIDs, "gid_map": c.GIDs} {
		text := ""
		for _, id := range ids {
			text += fmt.Sprintln(id.ContainerID, id.HostID, id.Size)
		}
		if err := write(fmt.Sprintf("/proc/%d/%s", pid, file), text); err != nil {
			return err
		}
	}
	_, err := unix.Write(pipe, []byte{0})
	return os.NewSyscallError("write", err)
}

// write writes to a file of /proc by one call, as the kernel wants it. os.WriteFile makes more than twice as many calls.
func write(path, text string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // the call has reported what was wrong
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// Tell tells the first process that the container is to end. It then leaves the container's other processes when the command ends. A
// command that has not begun by then does not begin, and has the status of one that was ended by SIGTERM.
func (f *First) Tell() { atomic.StoreUint32(f.toldWord(), 1) }

func (f *First) toldWord() *uint32 { return (*uint32)(unsafe.Pointer(unsafe.SliceData(f.told))) }

// read reads the messages of the first process.
func (f *First) read() {
	for f.report >= 0 {
		var m message
		n, err := unix.Read(f.report, unsafe.Slice((*byte)(unsafe.Pointer(&m)), messageBytes))
		f.heard = f.heard || n == messageBytes
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || n != messageBytes:
			return
		case m.kind == commandStarted:
		case m.kind == allEnded:
			f.last = m
		case m.kind == commandEnded:
			f.ended = m
		default:
			f.failed = m
		}
	}
}

// Silent reports whether no message has come. After the end of the first process this means that the command has not begun, and that
// Failure does not have the reason.
func (f *First) Silent() bool {
	f.read()
	return !f.heard
}

// Code returns the exit status of the command, as a shell tells it; false if it has not ended.
func (f *First) Code() (code int, ended bool) {
	f.read()
	return int(f.ended.first), f.ended.kind == commandEnded
}

// Failure returns the reason why the command did not begin, after the end of the first process: the error of the call that is
// described by what, or of the command's program, for which what is empty.
func (f *First) Failure() (what string, err error) {
	f.read()
	switch f.failed.kind {
	case setUpFailed:
		what = "start the command"
		if i := int(f.failed.first); i < len(f.what) {
			what = f.what[i]
		}
		return what, syscall.Errno(f.failed.second) //nolint:gosec // it was one
	case notExecuted:
		return "", syscall.Errno(f.failed.first) //nolint:gosec // it was one
	}
	return "", nil
}

// Peak returns the largest memory of a process of the container but the first one, after the end of that; 0 if it is not known.
// whole is the largest of all.
func (f *First) Peak(whole int64) int64 {
	f.read()
	const unit = 1024 // getrusage(2): kilobytes
	if own := f.last.first * unit; f.last.kind == allEnded && whole <= own {
		return f.last.second * unit
	}
	return whole
}

// Close ends the reading of messages. Tell must not be called afterwards.
func (f *First) Close() {
	if f.told != nil {
		_ = unix.Munmap(f.told) // it is a whole mapping
	}
	f.told = nil
	if f.report >= 0 {
		_ = unix.Close(f.report)
	}
	f.report = -1
}
