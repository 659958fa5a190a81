package container

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// capability is one by name and number.
type capability struct {
	name   string
	number uintptr
}

// capabilities are those that Docker's containers have
// (docs.docker.com: Runtime privilege and Linux capabilities).
func capabilities() []capability {
	return []capability{
		{"AUDIT_WRITE", unix.CAP_AUDIT_WRITE},
		{"CHOWN", unix.CAP_CHOWN},
		{"DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE},
		{"FOWNER", unix.CAP_FOWNER},
		{"FSETID", unix.CAP_FSETID},
		{"KILL", unix.CAP_KILL},
		{"MKNOD", unix.CAP_MKNOD},
		{"NET_BIND_SERVICE", unix.CAP_NET_BIND_SERVICE},
		{"NET_RAW", unix.CAP_NET_RAW},
		{"SETFCAP", unix.CAP_SETFCAP},
		{"SETGID", unix.CAP_SETGID},
		{"SETPCAP", unix.CAP_SETPCAP},
		{"SETUID", unix.CAP_SETUID},
		{"SYS_CHROOT", unix.CAP_SYS_CHROOT},
	}
}

// dropCapabilities keeps from what this thread starts every other capability:
// with more it could, for one, make read-only binds writable. What it has
// itself it keeps.
func dropCapabilities() error {
	keep := capabilities()
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) // Linux 4.3
	for n := range uintptr(64) {
		if slices.ContainsFunc(keep, func(c capability) bool { return c.number == n }) {
			continue
		}
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, n, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return clearInheritable() // beyond the last that this kernel has
		}
		if err == nil && has == 1 {
			err = unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0)
		}
		if errors.Is(err, unix.EPERM) {
			return clearInheritable() // no root, whose programs gain none
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", n, err)
		}
	}
	return clearInheritable()
}

// clearInheritable keeps programs from inheriting beside the bounding set.
func clearInheritable() error {
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
