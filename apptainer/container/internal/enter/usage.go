package enter

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// measure returns the use of this process's children, and the counts of the container's cgroup if
// that has a limit.
func measure() (u container.Usage) {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &r) == nil {
		u.User, u.System = time.Duration(r.Utime.Nano()), time.Duration(r.Stime.Nano())
		u.MemoryPeak = r.Maxrss * 1024 // getrusage(2): kilobytes
	}
	addCgroup(&u, "/")
	u.RefusedProcesses = refusedProcesses("/")
	return u
}

// sample returns the present use of the container's cgroups, given the root of the file system.
func sample(root string) (u container.Usage) {
	addCgroup(&u, root)
	dir, v2 := ownCgroup(root, "memory")
	used, droppable := "memory.usage_in_bytes", "total_inactive_file "
	if v2 {
		used, droppable = "memory.current", "inactive_file "
	}
	u.Memory = max(0, number(readFile(dir, used))-count(readFile(dir, "memory.stat"), droppable))
	dir, v2 = ownCgroup(root, "cpuacct")
	if v2 {
		stat := readFile(dir, "cpu.stat")
		u.User, u.System = time.Duration(count(stat, "user_usec "))*time.Microsecond, time.Duration(count(stat, "system_usec "))*time.Microsecond
		return u
	}
	const tick = 10 * time.Millisecond // of proc(5), on all supported architectures
	stat := readFile(dir, "cpuacct.stat")
	u.User, u.System = time.Duration(count(stat, "user "))*tick, time.Duration(count(stat, "system "))*tick
	return u
}

// addCgroup adds the counts of the container's cgroup, given the root of the file system.
func addCgroup(u *container.Usage, root string) {
	names := [...]string{"memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"}
	dir, v2 := ownCgroup(root, "memory")
	if v2 {
		names = [...]string{"memory.max", "memory.peak", "memory.events"}
	}
	const unlimited = 1 << 62
	if limit := number(readFile(dir, names[0])); limit <= 0 || limit >= unlimited {
		return // the cgroup may also have other processes
	}
	if peak := number(readFile(dir, names[1])); peak > 0 { // version 2 has it from Linux 5.19 on
		u.MemoryPeak = peak
	}
	u.OOMKills = count(readFile(dir, names[2]), "oom_kill ")
}

// refusedProcesses returns how often the limit of processes of the container's cgroup was reached (Linux
// Documentation/admin-guide/cgroup-v2.rst: pids.events), given the root of the file system.
func refusedProcesses(root string) int64 {
	dir, _ := ownCgroup(root, "pids")
	if number(readFile(dir, "pids.max")) <= 0 {
		return 0
	}
	return count(readFile(dir, "pids.events"), "max ")
}

// count returns the number behind a name in a file of the kernel.
func count(text []byte, name string) (n int64) {
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte(name)); ok {
			n = number(value)
		}
	}
	return n
}

// ownCgroup returns the directory of this process's cgroup for a controller. An engine shows it
// below its path on the host, or as the root.
func ownCgroup(root, controller string) (dir string, v2 bool) {
	name := ""
	v2 = true
	for line := range strings.Lines(string(readFile(root, "proc/self/cgroup"))) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3:
		case strings.Contains(","+parts[1]+",", ","+controller+","):
			v2, name = false, parts[2]
		case parts[1] == "" && v2:
			name = parts[2]
		}
	}
	top := filepath.Join(root, "sys/fs/cgroup")
	if !v2 {
		top = filepath.Join(top, controller)
	}
	if dir := filepath.Join(top, name); isDir(dir) {
		return dir, v2
	}
	return top, v2
}

func isDir(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// readFile reads a file of the kernel. It returns nil if it cannot.
func readFile(dir, name string) []byte {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil
	}
	return text
}

// number parses a number. It returns 0 for any other text.
func number(text []byte) int64 {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
