// Command calls makes system calls that a container's command must not make, for tests. Their
// arguments are such that a kernel without a filter gives another answer to most of them. It prints
// the name of each call and the kernel's answer.
package main

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	runtime.LockOSThread() // a call that succeeds may change only this thread
	const wrong = ^uintptr(0)
	for _, c := range []struct {
		name                         string
		number, first, second, third uintptr
	}{
		{"bpf", unix.SYS_BPF, wrong, 0, 0},
		{"clone3", unix.SYS_CLONE3, 0, 0, 0},
		{"clone(CLONE_NEWUSER)", unix.SYS_CLONE, unix.CLONE_NEWUSER | uintptr(unix.SIGCHLD), 0, 0},
		{"file_getattr", unix.SYS_FILE_GETATTR, wrong, 0, 0},
		{"io_uring_enter", unix.SYS_IO_URING_ENTER, wrong, 0, 0},
		{"io_uring_register", unix.SYS_IO_URING_REGISTER, wrong, 0, 0},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, 0, 0, 0},
		{"kcmp", unix.SYS_KCMP, wrong, wrong, wrong},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR, wrong, 0, wrong},
		{"move_pages", unix.SYS_MOVE_PAGES, 0, 0, 0},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, wrong, 0, 0},
		{"open_tree", unix.SYS_OPEN_TREE, wrong, 0, 0},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, 0, 0, wrong},
		{"personality(ADDR_NO_RANDOMIZE)", unix.SYS_PERSONALITY, 0x0040000, 0, 0},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, wrong, 0, 0},
		{"process_madvise", unix.SYS_PROCESS_MADVISE, wrong, 0, 0},
		{"setns", unix.SYS_SETNS, wrong, 0, 0},
		{"socket(AF_ALG)", unix.SYS_SOCKET, unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{"socket(AF_VSOCK)", unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{"unshare(CLONE_NEWUSER)", unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0},
		{"unshare(0)", unix.SYS_UNSHARE, 0, 0, 0},
		{"userfaultfd", unix.SYS_USERFAULTFD, wrong, 0, 0},
	} {
		result, _, errno := unix.RawSyscall6(c.number, c.first, c.second, c.third, 0, 0, 0)
		if c.number == unix.SYS_CLONE && errno == 0 && result == 0 {
			os.Exit(0) //nolint:forbidigo // the child, which must not have been made
		}
		fmt.Println(c.name, answer(errno))
	}
	var mode int32
	_, _, errno := unix.RawSyscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), 0, 0, 0, 0, 0)
	fmt.Println("get_mempolicy", answer(errno))
}

func answer(errno unix.Errno) string {
	if errno == 0 {
		return "succeeds"
	}
	return unix.ErrnoName(errno)
}
