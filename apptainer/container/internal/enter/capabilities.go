package enter

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Capabilities returns the names of the capabilities of Docker's containers, by number
// (docs.docker.com: Runtime privilege and Linux capabilities).
func Capabilities() map[uintptr]string {
	return map[uintptr]string{
		unix.CAP_AUDIT_WRITE:      "CAP_AUDIT_WRITE",
		unix.CAP_CHOWN:            "CAP_CHOWN",
		unix.CAP_DAC_OVERRIDE:     "CAP_DAC_OVERRIDE",
		unix.CAP_FOWNER:           "CAP_FOWNER",
		unix.CAP_FSETID:           "CAP_FSETID",
		unix.CAP_KILL:             "CAP_KILL",
		unix.CAP_MKNOD:            "CAP_MKNOD",
		unix.CAP_NET_BIND_SERVICE: "CAP_NET_BIND_SERVICE",
		unix.CAP_NET_RAW:          "CAP_NET_RAW",
		unix.CAP_SETFCAP:          "CAP_SETFCAP",
		unix.CAP_SETGID:           "CAP_SETGID",
		unix.CAP_SETPCAP:          "CAP_SETPCAP",
		unix.CAP_SETUID:           "CAP_SETUID",
		unix.CAP_SYS_CHROOT:       "CAP_SYS_CHROOT",
	}
}

// dropCapabilities takes all other capabilities from the processes that this thread starts. With
// more, a process could make read-only binds writable. The thread keeps its own.
func dropCapabilities() error {
	keep := Capabilities()
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) // Linux 4.3
	for n := range uintptr(64) {
		if keep[n] != "" {
			continue
		}
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, n, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // this kernel has no more
		}
		if err == nil && has == 1 {
			err = unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0)
		}
		if errors.Is(err, unix.EPERM) {
			break // only root may drop them, and other users' programs gain none
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", n, err)
		}
	}
	// Programs inherit these in addition to the bounding set.
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&head, &data[0])
	if err == nil {
		data[0].Inheritable, data[1].Inheritable = 0, 0
		err = unix.Capset(&head, &data[0])
	}
	if err != nil {
		return fmt.Errorf("drop inheritable capabilities: %w", err)
	}
	return nil
}
