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

// measure returns what the children of this process have used, and what the container's cgroup counts
// where it has a limit.
func measure() (u container.Usage) {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &r) == nil {
		u.User, u.System = time.Duration(r.Utime.Nano()), time.Duration(r.Stime.Nano())
		u.MemoryPeak = r.Maxrss * 1024 // getrusage(2): kilobytes
	}
	addCgroup(&u, "/")
	return u
}

// addCgroup adds what the container's cgroup counts, given the root of the file system.
func addCgroup(u *container.Usage, root string) {
	names := [...]string{"memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"}
	dir, v2 := memoryCgroup(root)
	if v2 {
		names = [...]string{"memory.max", "memory.peak", "memory.events"}
	}
	const unlimited = 1 << 62
	if limit := number(readFile(dir, names[0])); limit <= 0 || limit >= unlimited {
		return // the cgroup may be that of other processes too
	}
	if peak := number(readFile(dir, names[1])); peak > 0 { // version 2 has it since Linux 5.19
		u.MemoryPeak = peak
	}
	for line := range bytes.Lines(readFile(dir, names[2])) {
		if count, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			u.OOMKills = number(count)
		}
	}
}

// memoryCgroup is the directory of the cgroup with this process's memory. An engine shows it below its
// path on the host, or as if it were the root.
func memoryCgroup(root string) (dir string, v2 bool) {
	name := ""
	v2 = true
	for line := range strings.Lines(string(readFile(root, "proc/self/cgroup"))) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3:
		case strings.Contains(","+parts[1]+",", ",memory,"):
			v2, name = false, parts[2]
		case parts[1] == "" && v2:
			name = parts[2]
		}
	}
	top := filepath.Join(root, "sys/fs/cgroup")
	if !v2 {
		top = filepath.Join(top, "memory")
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

// readFile reads a file of the kernel. A missing one is empty.
func readFile(dir, name string) []byte {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil
	}
	return text
}

// number reads a number; anything else is 0.
func number(text []byte) int64 {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
