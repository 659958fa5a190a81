package seccomp

import (
	"errors"

	"golang.org/x/sys/unix"
)

// abi is a binary interface to the kernel.
type abi struct {
	audit     uint32 // struct seccomp_data: arch
	table     int
	mask      uint32 // of the bits that number a call
	bigEndian bool
	// cloneFlags is the position of clone's flags among its arguments.
	cloneFlags uint32
	// beyond lists the calls with numbers after lastCall.
	beyond []span
	// others are calls of refusedCalls with further numbers.
	others []uint32
}

// architecture returns the ABIs of an architecture, by Go's name.
func architecture(name string) ([]abi, error) {
	const all = ^uint32(0)
	unknown := []span{{lastCall + 1, enosys}}
	generic := abi{table: tableGeneric, mask: all, beyond: unknown}
	switch name {
	case "amd64":
		// x32 is like amd64, with a mark in the number, and numbers from 512 to 547 of its own
		// (arch/x86/include/uapi/asm/unistd.h: __X32_SYSCALL_BIT), with kexec_load and move_pages
		// among them.
		x32 := append(unknown, span{512, allow}, span{548, enosys})
		return []abi{
			{audit: unix.AUDIT_ARCH_X86_64, table: tableAMD64, mask: ^uint32(0x40000000), beyond: x32, others: []uint32{528, 533}},
			{audit: unix.AUDIT_ARCH_I386, table: tableI386, mask: all, beyond: unknown},
		}, nil
	case "arm64":
		// The private calls of arm, such as cacheflush (arch/arm/include/uapi/asm/unistd.h).
		private := append(unknown, span{0xf0000, allow}, span{0xf1000, enosys})
		generic.audit = unix.AUDIT_ARCH_AARCH64
		return []abi{generic, {audit: unix.AUDIT_ARCH_ARM, table: tableARM, mask: all, beyond: private}}, nil
	case "riscv64":
		generic.audit = unix.AUDIT_ARCH_RISCV64
		return []abi{generic}, nil
	case "ppc64le":
		return []abi{{audit: unix.AUDIT_ARCH_PPC64LE, table: tablePPC64LE, mask: all, beyond: unknown}}, nil
	case "s390x": // clone(2): C library/kernel differences
		return []abi{{audit: unix.AUDIT_ARCH_S390X, table: tableS390X, mask: all, beyond: unknown, bigEndian: true, cloneFlags: 1}}, nil
	}
	return nil, errors.New("the numbers of " + name + "'s system calls are not known to this program")
}

// Offsets in struct seccomp_data (seccomp(2)).
const (
	offsetOfCall      = 0
	offsetOfAudit     = 4
	offsetOfArguments = 16
)

// argument asks about the lower half of an argument, by its position. The kernel ignores the upper
// half for those that this package asks about.
func (a abi) argument(position, mask uint32, spans []span) node {
	offset := offsetOfArguments + 8*position
	if a.bigEndian {
		offset += 4
	}
	return &question{offset: offset, mask: mask, spans: spans}
}

// byNumber asks about the number of the call.
func (a abi) byNumber(base []span, numbers map[uint32]node) node {
	return &question{offset: offsetOfCall, mask: a.mask, spans: refine(base, numbers)}
}

// rules are decisions by the number of a call in an ABI.
type rules struct {
	abi   abi
	nodes map[uint32]node
}

func (r rules) set(n numbers, decision node) {
	if number := n[r.abi.table]; number != none {
		r.nodes[uint32(number)] = decision //nolint:gosec // from the tables
	}
}

func (r rules) setAll(calls []call, decision node) {
	for _, c := range calls {
		r.set(c.numbers, decision)
	}
}

// keysFilter refuses the calls for keys with ENOSYS, as a kernel without keys does. Programs that
// can work without keys then do so, and keyring.Leave succeeds.
func keysFilter(abis []abi) []unix.SockFilter {
	return choose(abis, func(a abi) node {
		r := rules{a, map[uint32]node{}}
		r.setAll(keyCalls(), enosys)
		return a.byNumber([]span{{0, allow}}, r.nodes)
	})
}

// newNamespaces are the flags of clone(2) for new namespaces, CLONE_NEWNS, NEWCGROUP, NEWUTS,
// NEWIPC, NEWUSER, NEWPID and NEWNET.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// commandFilter follows Docker's default profile for a container with Docker's default
// capabilities, in the version of Docker 29.7 (github.com/moby/profiles, tag seccomp/v0.2.3:
// seccomp/default.json). The profile lists allowed calls; these rules list the refused ones. A call
// that is newer than the profile gets ENOSYS, as runc answers it
// (libcontainer/seccomp/patchbpf/enosys_linux.go).
func commandFilter(abis []abi, emulate Emulation) []unix.SockFilter {
	return choose(abis, func(a abi) node {
		r := rules{a, make(map[uint32]node, 160)}
		r.setAll(refusedCalls(), eperm)
		for _, number := range a.others {
			r.nodes[number] = eperm
		}
		r.setAll(keyCalls(), enosys)
		namespaces := a.argument(a.cloneFlags, newNamespaces, []span{{0, allow}, {1, eperm}})
		r.set(cloneCall(), namespaces)
		r.set(clone3Call(), enosys) // its flags are in memory, which no filter reads; the C library then calls clone
		r.set(socketCall(), a.argument(0, ^uint32(0), refine([]span{{0, allow}}, map[uint32]node{unix.AF_ALG: eperm, unix.AF_VSOCK: eperm})))
		r.set(personalityCall(), a.argument(0, ^uint32(0), refine([]span{{0, eperm}}, map[uint32]node{
			linux: allow, linux32: allow, uname26 | linux: allow, uname26 | linux32: allow, queryPersonality: allow,
		})))
		if emulate == Root {
			r.setAll(ownerCalls(), pretend)
			devices := refine([]span{{0, allow}}, map[uint32]node{unix.S_IFCHR: pretend, unix.S_IFBLK: pretend})
			r.set(mknodCall(), a.argument(1, unix.S_IFMT, devices))
			r.set(mknodatCall(), a.argument(2, unix.S_IFMT, devices))
		}
		return a.byNumber(append([]span{{0, allow}}, a.beyond...), r.nodes)
	})
}

// Values of personality(2).
const (
	linux            = 0x0000000  // PER_LINUX
	linux32          = 0x0000008  // PER_LINUX32
	uname26          = 0x0020000  // UNAME26
	queryPersonality = 0xffffffff // changes nothing
)
