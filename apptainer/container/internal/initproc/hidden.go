package initproc

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/subpath"
)

// hidden are files and directories about the whole machine that Docker hides in its containers, except for
// one directory for each processor (moby v29 daemon/pkg/oci/defaults.go: defaultLinuxMaskedPaths). Some help to
// spy on other programs: /proc/keys lists the account's keys, and /proc/interrupts counts keystrokes and
// packets.
func hidden() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
		"/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	}
}

// Settings is the directory with the kernel's settings. As in Docker, no container may change them. The
// container's root owns those of its own namespaces.
const Settings = "/proc/sys"

// Hidden returns the files and directories of this kernel that a container must not show. It omits those that
// this process cannot read, and empty ones: each mount takes a part of a millisecond of a container's start.
func Hidden() (files, dirs []string) {
	for _, name := range hidden() {
		if unix.Access(name, unix.R_OK) != nil {
			continue
		}
		switch entries, err := os.ReadDir(name); {
		case errors.Is(err, unix.ENOTDIR):
			files = append(files, name)
		case err == nil && len(entries) > 0:
			dirs = append(dirs, name)
		}
	}
	return files, dirs
}

// HideSys mounts an empty directory over those of /sys in this mount namespace, and returns the other ones.
func HideSys(dirs []string) (others []string, err error) {
	for _, dir := range dirs {
		if !subpath.Within(dir, "/sys") {
			others = append(others, dir)
			continue
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return nil, fmt.Errorf("hide %s: %w", dir, err)
		}
	}
	return others, nil
}
