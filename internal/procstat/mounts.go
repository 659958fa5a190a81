package procstat

import "strings"

// Mount is a mount of a mount namespace (proc_pid_mountinfo(5)).
type Mount struct {
	// Device is the file system's, such as "0:25".
	Device string
	// Root is the directory of the file system that is mounted, and At the mount's path.
	Root, At string
	// Options are the mount's own, such as "ro", and FileSystemOptions those of the file system.
	Options, FileSystemOptions []string
	// Type is the file system's type, such as "tmpfs".
	Type string
}

// Mounts returns the mounts in the text of /proc/PID/mountinfo, in its order: a mount covers earlier ones at its path.
func Mounts(mountinfo string) (mounts []Mount) {
	// The kernel writes these characters as octal numbers (fs/proc_namespace.c: mangle).
	names := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")
	for line := range strings.Lines(mountinfo) {
		mount, source, ok := strings.Cut(line, " - ")
		of, from := strings.Fields(mount), strings.Fields(source)
		if !ok || len(of) < 6 || len(from) < 3 {
			continue
		}
		mounts = append(mounts, Mount{
			Device: of[2], Root: names.Replace(of[3]), At: names.Replace(of[4]), Options: strings.Split(of[5], ","),
			Type: from[0], FileSystemOptions: strings.Split(from[2], ","),
		})
	}
	return mounts
}

// MountAt returns the mount that an absolute path is on, or false if no mount is above it.
func MountAt(mounts []Mount, path string) (at Mount, ok bool) {
	for _, m := range mounts {
		above := m.At == "/" || m.At == path || strings.HasPrefix(path, m.At+"/")
		if above && len(m.At) >= len(at.At) { // a later mount covers an earlier one
			at, ok = m, true
		}
	}
	return at, ok
}
