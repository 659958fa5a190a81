package initproc

import "os"

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

// Hidden returns the files and directories of this kernel that a container must not show.
func Hidden() (files, dirs []string) {
	for _, name := range hidden() {
		switch info, err := os.Stat(name); {
		case err != nil: // this kernel does not have it
		case info.IsDir():
			dirs = append(dirs, name)
		default:
			files = append(files, name)
		}
	}
	return files, dirs
}
