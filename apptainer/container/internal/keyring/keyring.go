// Package keyring keeps the kernel's keys, such as Kerberos tickets, from the commands of
// containers (keyrings(7)).
//
// The kernel checks keys by the user, and no namespace of a container separates them. All bundles
// of an account are one user to it. So a command could read the keys of the account and of its
// other bundles by their numbers, which are 32-bit and listed in /proc/keys.
//
// Therefore package seccomp refuses the three system calls for keys. [Leave] removes access to the
// keys that the kernel itself looks up for a process, for example when it opens a file of a network
// file system.
package keyring

import (
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
