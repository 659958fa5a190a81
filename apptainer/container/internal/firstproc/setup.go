package firstproc

import (
	"math"
	"os"
	"sort"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Setup prepares the first process of one container. Its zero value is usable. It is used once.
//
// The methods that add a call add it behind the others. what describes the call for [First.Failure].
type Setup struct {
	memory memory
	calls  []call
	what   []string
}

// pointer returns the address of a copy of a value.
func pointer[T any](s *Setup, value T) uintptr { return uintptr(unsafe.Pointer(put(&s.memory, value))) }

// text returns the address of a C string, and 0 for an empty one.
func (s *Setup) text(value string) uintptr {
	if value == "" {
		return 0
	}
	return s.memory.address(value)
}

// Close gives memory back, after the start.
func (s *Setup) Close() { s.memory.release() }

// Call adds a system call.
func (s *Setup) Call(what string, number uintptr, args ...uintptr) {
	c := call{number: number}
	copy(c.args[:], args)
	s.calls, s.what = append(s.calls, c), append(s.what, what)
}

// TryCall adds a system call that may fail.
func (s *Setup) TryCall(what string, number uintptr, args ...uintptr) {
	s.Call(what, number, args...)
	s.calls[len(s.calls)-1].mayFail = true
}

// Mount adds mount(2).
func (s *Setup) Mount(source, target, kind string, flags uintptr, data string) {
	s.Call("mount "+target, unix.SYS_MOUNT, s.text(source), s.text(target), s.text(kind), flags, s.text(data))
}

// SetAttributes adds mount_setattr(2), which sets attributes of a mount and of all mounts below it.
func (s *Setup) SetAttributes(target string, attributes uint64) {
	attr := unix.MountAttr{Attr_set: attributes}
	s.Call("restrict the mount "+target, unix.SYS_MOUNT_SETATTR, at(unix.AT_FDCWD), s.text(target), unix.AT_RECURSIVE, pointer(s, attr), unsafe.Sizeof(attr))
}

// at returns a descriptor as a system call takes it.
func at(fd int) uintptr { return uintptr(fd) } // with its sign

// EnterRoot makes a directory, which is a mount point, the root directory, removes all other mounts, and makes dir the working
// directory.
func (s *Setup) EnterRoot(root, dir string) {
	s.Call("enter the root directory", unix.SYS_CHDIR, s.text(root))
	s.Call("make the root directory", unix.SYS_PIVOT_ROOT, s.text("."), s.text("."))
	s.Call("remove the host's mounts", unix.SYS_UMOUNT2, s.text("."), unix.MNT_DETACH)
	s.Call(EnterDir, unix.SYS_CHDIR, s.text(dir))
}

// EnterDir describes the call that enters the working directory.
const EnterDir = "enter the working directory"

// RaiseLoopback switches the loopback interface of a new network on. No descriptor from reportFD on may be open but that.
func (s *Setup) RaiseLoopback() error {
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return os.NewSyscallError("ifreq", err)
	}
	request.SetUint32(unix.IFF_UP)
	const socket = reportFD + 1 // the lowest descriptor that is free
	s.Call("make a socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	s.Call("switch the loopback interface on", unix.SYS_IOCTL, socket, unix.SIOCSIFFLAGS, pointer(s, *request))
	s.Call("close a socket", unix.SYS_CLOSE, socket)
	return nil
}

// KeepCapabilities takes all capabilities from the container but these.
func (s *Setup) KeepCapabilities(keep map[uintptr]string) {
	var mask uint64
	for n := range keep {
		mask |= 1 << n
	}
	all := sort.Search(64, func(n int) bool { // those of this kernel: the number of the first that it lacks
		_, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(n), 0, 0, 0)
		return err != nil
	})
	for n := range uintptr(all) {
		if keep[n] == "" {
			s.Call("drop a capability", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, n)
		}
	}
	s.TryCall("drop ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL) // Linux 4.3
	low, high := uint32(mask&math.MaxUint32), uint32(mask>>32)                                                 // the halves
	data := [2]unix.CapUserData{{Effective: low, Permitted: low}, {Effective: high, Permitted: high}}
	s.Call("drop capabilities", unix.SYS_CAPSET, pointer(s, unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}), pointer(s, data))
}

// LimitFiles limits the open files.
func (s *Setup) LimitFiles(limit unix.Rlimit) {
	s.Call("limit its open files", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, pointer(s, limit), 0)
}

// Filter installs a filter of system calls, an array of struct sock_filter. The caller's thread has no_new_privs.
func (s *Setup) Filter(program []byte) {
	filter := (*unix.SockFilter)(unsafe.Pointer(unsafe.SliceData(putAll(&s.memory, program))))
	prog := unix.SockFprog{Len: uint16(len(program) / unix.SizeofSockFilter), Filter: filter} //nolint:gosec // some hundred instructions
	s.Call("give up system calls (seccomp)", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, pointer(s, prog))
}

// begin adds the calls that come before all others: those for the descriptors, and against the container's other processes.
func (s *Setup) begin(files [3]uintptr, report, mapped int) (calls []call, what []string) {
	calls, what = s.calls, s.what
	s.calls, s.what = nil, nil
	if mapped >= 0 {
		s.Call("wait for its ids", unix.SYS_READ, at(mapped), pointer(s, byte(0)), 1)
	}
	s.Call("open its report", unix.SYS_DUP3, at(report), reportFD, unix.O_CLOEXEC)
	for i, fd := range files {
		if fd != uintptr(i) {
			s.Call("open its output", unix.SYS_DUP3, fd, uintptr(i), 0)
		}
	}
	s.Call("close files", unix.SYS_CLOSE_RANGE, reportFD+1, math.MaxInt32, 0)
	s.Call("close its memory to others", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	s.Call("name itself", unix.SYS_PRCTL, unix.PR_SET_NAME, s.text(Name))
	// A signal must not run a handler of Go's. Executing a program would reset them, too, but only after a signal may have come.
	zero := pointer(s, [64]byte{}) // struct sigaction, with the default action
	for n := range uintptr(64) {
		s.TryCall("reset a signal", unix.SYS_RT_SIGACTION, n+1, zero, 0, 8)
	}
	first, firstWhat := s.calls, s.what
	s.calls, s.what = calls, what
	return append(first, calls...), append(firstWhat, what...)
}

// Name is the name of the first process (proc_pid_comm(5)). Package worker tells it from the command's processes by this name.
const Name = "cl-first"
