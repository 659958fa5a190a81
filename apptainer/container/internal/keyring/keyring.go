// Package keyring keeps the kernel's keys, such as Kerberos tickets, from the commands of
// containers (keyrings(7)).
//
// The kernel checks keys by the user, and no namespace of a container separates them. All bundles
// of an account are one user to it. So a command could read the keys of the account and of its
// other bundles by their numbers, which are 32-bit and listed in /proc/keys.
//
// Therefore [Forbid] refuses the three system calls for keys. [Leave] removes access to the keys
// that the kernel itself looks up for a process, for example when it opens a file of a network file
// system.
package keyring

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// Leave gives the calling thread, and the processes that it starts, a new and empty session
// keyring. It succeeds on a kernel without keys.
func Leave() error {
	// A null pointer requests a keyring without a name, and unix.KeyctlJoinSessionKeyring cannot
	// pass one.
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if errno == 0 || errno == unix.ENOSYS {
		return nil
	}
	if errno == unix.EDQUOT {
		return container.HostErrorf("this account has as many keyrings on this node as it may have, and each container takes one: " +
			"kernel.keys.maxkeys has to be raised, or the account's other programs there have to end")
	}
	return container.HostErrorf("this node does not let a container leave the account's keyring: %w", errno)
}

// Forbid makes the system calls for keys fail in this process, and in all that it starts
// afterwards. None of them can gain privileges any more (no_new_privs), which the kernel requires
// for a filter.
func Forbid() error {
	program, err := filter(runtime.GOARCH)
	if err != nil {
		return err
	}
	// The thread must not change between the two calls. The second applies to all threads.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]} //nolint:gosec // some twenty instructions
	//nolint:gosec // as seccomp(2) takes it
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return container.HostErrorf("this node's kernel does not let a container give up system calls (seccomp): %w", errno)
	}
	if thread != 0 { // it has another filter, so no thread has this one
		return fmt.Errorf("give up system calls (seccomp): thread %d does not take the filter", thread)
	}
	return nil
}

// abi is one way to call the kernel, with its numbers of add_key, request_key and keyctl.
type abi struct {
	audit uint32 // struct seccomp_data: arch
	calls [3]uint32
}

// abis returns the ways to call the kernel of an architecture, by Go's name. A program chooses one
// with each call, so a filter for only one would let the others through.
func abis(architecture string) []abi {
	return map[string][]abi{
		"amd64":   {{unix.AUDIT_ARCH_X86_64, [3]uint32{248, 249, 250}}, {unix.AUDIT_ARCH_I386, [3]uint32{286, 287, 288}}},
		"arm64":   {{unix.AUDIT_ARCH_AARCH64, [3]uint32{217, 218, 219}}, {unix.AUDIT_ARCH_ARM, [3]uint32{309, 310, 311}}},
		"ppc64le": {{unix.AUDIT_ARCH_PPC64LE, [3]uint32{269, 270, 271}}},
		"riscv64": {{unix.AUDIT_ARCH_RISCV64, [3]uint32{217, 218, 219}}},
		"s390x":   {{unix.AUDIT_ARCH_S390X, [3]uint32{278, 279, 280}}},
	}[architecture]
}

// notX32 clears the mark of amd64's third way, x32, which is otherwise like the first
// (arch/x86/include/uapi/asm/unistd.h: __X32_SYSCALL_BIT). On other architectures, no call has such
// a high number.
const notX32 = ^uint32(0x40000000)

// Offsets in struct seccomp_data (seccomp(2)).
const (
	offsetOfCall  = 0
	offsetOfAudit = 4
)

// filter returns the program that the kernel runs for each system call (seccomp(2)). The answer to
// a forbidden call is ENOSYS, as on a kernel without keys. Programs that can work without keys then
// do so, and Leave, in a container within this one, succeeds. A call by a way that is not in abis
// gets the same answer.
//
// The filter is made here, because the libraries for filters without C, such as
// github.com/elastic/go-seccomp-bpf (filter.go: Policy.Assemble), support only one way for each
// architecture, and let calls by the others through if the default is to allow.
func filter(architecture string) ([]unix.SockFilter, error) {
	ways := abis(architecture)
	if ways == nil {
		return nil, errors.New("the numbers of " + architecture + "'s system calls for keys are not known to this program")
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	// An instruction has two jumps: one for an equal value, and one for an unequal value.
	equal := func(value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: yes, Jf: no}
	}
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	refuse := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}

	program := []unix.SockFilter{load(offsetOfAudit)}
	for _, w := range ways {
		program = append(program,
			equal(w.audit, 0, 7), // to the next way
			load(offsetOfCall),
			unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: notX32},
			equal(w.calls[0], 3, 0), // to the refusal
			equal(w.calls[1], 2, 0),
			equal(w.calls[2], 1, 0),
			allow,
			refuse,
		)
	}
	return append(program, refuse), nil
}
