// Package seccomp makes the filters of a container's system calls (seccomp(2)).
//
// The kernel runs a filter for each system call of a process, and of all processes that it starts
// afterwards. A filter cannot be taken off. There are two of them:
//
//   - [ForbidKeys] refuses only the calls for the kernel's keys. It holds for an init, and for the
//     programs that it starts around the container.
//   - [Confine] and [Program] make the filter of the command. It refuses what Docker's default
//     profile refuses, with the departures that docs/security.md lists. With Emulate, it also
//     answers some calls of root with success and no effect (root emulation).
//
// A program chooses with each call one of several binary interfaces (ABIs) to the kernel, which
// number the calls differently: amd64, x32 and i386 on amd64; arm64 and arm on arm64. A filter for
// only one of them would let the others through. A call by an ABI that is not in this package gets
// ENOSYS.
//
// The filters are made here, because the libraries for filters without C, such as
// github.com/elastic/go-seccomp-bpf (filter.go: Policy.Assemble), support only one ABI for each
// architecture, and let calls by the others through if the default is to allow.
package seccomp
