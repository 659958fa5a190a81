package seccomp

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// Emulation says whether a filter emulates root.
type Emulation bool

// Root makes the calls with which root gives files and processes to other ids succeed without
// effect: the families of chown(2), setuid(2) and setgroups(2), capset(2), and mknod(2) of a
// device. It is for a container in which only root has an id ([OnlyRoot]).
const Root Emulation = true

// ForbidKeys makes the system calls for keys fail in this process, and in all that it starts
// afterwards. None of them can gain privileges any more (no_new_privs), which the kernel requires
// for a filter.
func ForbidKeys() error {
	abis, err := architecture(runtime.GOARCH)
	if err != nil {
		return err
	}
	return install(keysFilter(abis), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// ForbidKeysHere is ForbidKeys for the calling thread alone, to which the caller has locked its goroutine.
func ForbidKeysHere() error {
	abis, err := architecture(runtime.GOARCH)
	if err != nil {
		return err
	}
	return install(keysFilter(abis), 0)
}

// Confine gives the filter of a container's command to this process, and to all that it starts
// afterwards. Like ForbidKeys, it sets no_new_privs.
func Confine(emulate Emulation) error {
	abis, err := architecture(runtime.GOARCH)
	if err != nil {
		return err
	}
	return install(commandFilter(abis, emulate), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// Program returns the filter of Confine as an array of struct sock_filter, for a program that
// installs it.
func Program(emulate Emulation) ([]byte, error) {
	abis, err := architecture(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	filter := commandFilter(abis, emulate)
	program := make([]byte, 0, len(filter)*int(unsafe.Sizeof(filter[0])))
	for _, i := range filter {
		program = binary.NativeEndian.AppendUint16(program, i.Code)
		program = append(program, i.Jt, i.Jf)
		program = binary.NativeEndian.AppendUint32(program, i.K)
	}
	return program, nil
}

// install installs a filter on the calling thread or, by the flag TSYNC, on all threads of this process.
func install(program []unix.SockFilter, flags uintptr) error {
	// The thread must not change between the two calls.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]} //nolint:gosec // some hundred instructions
	//nolint:gosec // as seccomp(2) takes it
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return container.HostErrorf("this node's kernel does not let a container give up system calls (seccomp): %w", errno)
	}
	if thread != 0 { // it has another filter, so no thread has this one
		return fmt.Errorf("give up system calls (seccomp): thread %d does not take the filter", thread)
	}
	return nil
}

// OnlyRoot returns Root if this process is root in a user namespace in which no other user has an
// id.
func OnlyRoot() Emulation {
	if os.Getuid() != 0 {
		return false
	}
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && isOnlyRoot(string(text))
}

// isOnlyRoot reads /proc/PID/uid_map (user_namespaces(7)): lines of an id inside, the same id
// outside, and a count.
func isOnlyRoot(uidMap string) Emulation {
	fields := strings.Fields(uidMap)
	return Emulation(len(fields) == 3 && fields[0] == "0" && fields[2] == "1")
}
