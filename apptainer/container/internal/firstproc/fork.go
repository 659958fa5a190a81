package firstproc

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a prepared system call.
type call struct {
	number uintptr
	args   [6]uintptr
	// mayFail is set if the container can do without it.
	mayFail bool
}

// Kinds of messages.
const (
	setUpFailed    = iota + 1 // a call has failed: its index, and the error
	commandStarted            // the process that becomes the command has started; it sends this itself
	notExecuted               // the command's program could not be executed: the error
	commandEnded              // the command has ended: its status, as a shell tells it
	allEnded                  // no process is left but the first one: its own largest memory, and that of its children, in KiB
)

// message is written by the first process to its caller.
type message struct{ kind, first, second int64 }

const messageBytes = int(unsafe.Sizeof(message{}))

// reportFD is the descriptor of the first process to which it writes messages.
const reportFD = 3

// image is what the first process and the command work with. It points to no memory of Go's, which KeepBack may keep from them.
type image struct {
	flags     uintptr
	page      uintptr // the size of a page
	calls     []call
	programs  []uintptr // the paths to try, as execvp(3) does
	argv, env uintptr
	// script are the arguments of a shell, of which the second is to be the path of a program that the kernel cannot execute: a script
	// without "#!". execvp(3) runs that so.
	script []uintptr
	// told is shared with the caller, and not 0 after Tell.
	told *uint32

	out    message
	status int32
	none   uint64 // the empty set of signals
	usage  syscall.Rusage
}

// stackBytes is more than the part of the stack below and above fork that the first process uses. The linker bounds the former
// (go:nosplit).
const stackBytes = 2048

// fork starts the first process. The calling goroutine is locked to its thread, which has all signals blocked. No other may fork at the
// same time: their stacks may have a page in common.
//
// fork itself calls the parts of the first process, one after another. If one part called the next, their frames together would
// exceed what the linker allows, at least without optimizations (-gcflags='all=-N -l').
//
//go:noinline
//go:norace
//go:nocheckptr
//go:nosplit
func (m *image) fork() (pid uintptr, errno syscall.Errno) {
	var here byte
	from := (uintptr(unsafe.Pointer(&here)) - stackBytes) &^ (m.page - 1)
	size := (uintptr(unsafe.Pointer(&here))+stackBytes+m.page-1)&^(m.page-1) - from
	_, _, errno = syscall.RawSyscall6(unix.SYS_MADVISE, from, size, unix.MADV_DOFORK, 0, 0, 0) // see KeepBack
	if errno != 0 {
		return 0, errno
	}
	pid, errno = clone(m.flags)
	if pid == 0 && errno == 0 {
		command := m.setUp()
		if command == 0 {
			m.execute()
		}
		m.await(command)
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_MADVISE, from, size, unix.MADV_DONTFORK, 0, 0, 0)
	return pid, errno
}

// clone copies the process (clone(2): C library/kernel differences).
//
//go:norace
//go:nosplit
func clone(flags uintptr) (pid uintptr, errno syscall.Errno) {
	if runtime.GOARCH == "s390x" {
		pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, 0, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0)
	} else {
		pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	}
	return pid, errno
}

// setUp is the first part of the first process: it does the calls and starts the command, in which it returns 0. From here on nothing
// may allocate memory, grow the stack or write a pointer, as in the standard library's fork (syscall/exec_linux.go:
// forkAndExecInChild1).
//
//go:noinline
//go:norace
//go:nocheckptr
//go:nosplit
func (m *image) setUp() (command uintptr) {
	for i := range m.calls {
		c := &m.calls[i]
		_, _, errno := syscall.RawSyscall6(c.number, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
		if errno != 0 && !c.mayFail {
			m.report(setUpFailed, int64(i), int64(errno)) //nolint:gosec // a small number
			exit(1)
		}
	}
	command, errno := clone(0)
	if errno != 0 {
		m.report(setUpFailed, int64(len(m.calls)), int64(errno)) //nolint:gosec // as above
		exit(1)
	}
	return command
}

// await is the last part of the first process: it waits for the command and the others. It does not return.
//
//go:noinline
//go:norace
//go:nocheckptr
//go:nosplit
func (m *image) await(command uintptr) {
	var code uintptr
	for {
		pid, _, errno := syscall.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&m.status)), 0, 0, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			break
		}
		if pid != command {
			continue
		}
		code = uintptr(m.status>>8) & 0xff                   //nolint:gosec // wait(2)
		if signal := uintptr(m.status) & 0x7f; signal != 0 { //nolint:gosec // as above
			code = 128 + signal
		}
		m.report(commandEnded, int64(code), 0)
		if *m.told == 0 {
			_, _, _ = syscall.RawSyscall6(unix.SYS_KILL, ^uintptr(0), uintptr(unix.SIGKILL), 0, 0, 0, 0)
		}
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_GETRUSAGE, uintptr(unix.RUSAGE_SELF), uintptr(unsafe.Pointer(&m.usage)), 0, 0, 0, 0)
	own := m.usage.Maxrss
	_, _, _ = syscall.RawSyscall6(unix.SYS_GETRUSAGE, ^uintptr(0), uintptr(unsafe.Pointer(&m.usage)), 0, 0, 0, 0) // RUSAGE_CHILDREN
	m.report(allEnded, own, m.usage.Maxrss)
	exit(code)
}

// execute becomes the command. It does not return.
//
//go:noinline
//go:norace
//go:nocheckptr
//go:nosplit
func (m *image) execute() {
	m.report(commandStarted, 0, 0)
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&m.none)), 0, unsafe.Sizeof(m.none), 0, 0)
	if *m.told != 0 { // signals that the caller sent before may have missed this process
		exit(128 + uintptr(unix.SIGTERM))
	}
	denied := false
	errno := unix.ENOENT
	for i := range m.programs {
		_, _, errno = syscall.RawSyscall6(unix.SYS_EXECVE, m.programs[i], m.argv, m.env, 0, 0, 0)
		if errno == unix.ENOEXEC {
			m.script[1] = m.programs[i]
			_, _, errno = syscall.RawSyscall6(unix.SYS_EXECVE, m.script[0], uintptr(unsafe.Pointer(&m.script[0])), m.env, 0, 0, 0)
		}
		if errno == unix.EACCES {
			denied = true
		} else if errno != unix.ENOENT && errno != unix.ENOTDIR {
			break
		}
	}
	if denied && (errno == unix.ENOENT || errno == unix.ENOTDIR) {
		errno = unix.EACCES
	}
	m.report(notExecuted, int64(errno), 0)
	exit(127)
}

//go:norace
//go:nocheckptr
//go:nosplit
func (m *image) report(kind, first, second int64) {
	m.out.kind, m.out.first, m.out.second = kind, first, second
	_, _, _ = syscall.RawSyscall6(unix.SYS_WRITE, reportFD, uintptr(unsafe.Pointer(&m.out)), uintptr(messageBytes), 0, 0, 0)
}

//go:noinline
//go:norace
//go:nosplit
func exit(code uintptr) {
	for {
		_, _, _ = syscall.RawSyscall6(unix.SYS_EXIT_GROUP, code, 0, 0, 0, 0, 0)
	}
}
