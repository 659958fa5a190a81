package worker

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/diskuse"
	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

// unlinked measures files without a name, which a container's processes hold open or have mapped. Only those
// processes reach such files, and no walk through directories finds them. A file that is on its way through a
// socket belongs to no process, and is missed.
type unlinked struct {
	disk, memory int64

	hosts map[uint64]bool // devices of directories of the host that the command writes to
	seen  map[diskuse.File]bool
}

// memoryUnlinked returns the size of open files in memory that are in no file system of the container's
// (memfd_create(2)), given the container's init.
func memoryUnlinked(proc string, root int) int64 {
	u := unlinked{seen: map[diskuse.File]bool{}}
	for _, dir := range commandDirs(proc, root) {
		u.addOpen(dir)
	}
	return u.memory
}

// diskUnlinked returns what files without a name take on disks, given the container's init, and directories of
// the host that the command writes to.
func diskUnlinked(proc string, root int, written ...string) int64 {
	u := unlinked{hosts: map[uint64]bool{}, seen: map[diskuse.File]bool{}}
	for _, dir := range written {
		var st unix.Stat_t
		if unix.Stat(dir, &st) == nil {
			u.hosts[diskuse.FileOf(&st).Dev] = true
		}
	}
	for _, dir := range commandDirs(proc, root) {
		u.addOpen(dir)
		u.addMapped(readText(filepath.Join(dir, "maps")))
	}
	return u.disk
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // it was only read
	return d.Readdirnames(-1)
}

// addOpen adds the open files of a process, given by its directory in /proc.
func (u *unlinked) addOpen(dir string) {
	names, _ := readNames(filepath.Join(dir, "fd"))
	for _, name := range names {
		u.addLink(filepath.Join(dir, "fd", name))
	}
}

// addLink adds an open file, given by its link in /proc. Memory in a tmpfs of the container's belongs to
// that (readTmpfs).
func (u *unlinked) addLink(link string) {
	var st unix.Stat_t
	if unix.Stat(link, &st) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	f := diskuse.FileOf(&st)
	if u.seen[f] {
		return
	}
	u.seen[f] = true
	var disk unix.Statfs_t
	switch err := unix.Statfs(link, &disk); {
	case err != nil:
	case isMemory(disk) && !u.hosts[f.Dev]:
		if name, err := os.Readlink(link); err == nil && strings.HasPrefix(name, "/memfd:") {
			u.memory += st.Blocks * 512
		}
	default:
		u.disk = diskuse.Add(u.disk, diskuse.Of(&st))
	}
}

func isMemory(disk unix.Statfs_t) bool {
	return disk.Type == unix.TMPFS_MAGIC || disk.Type == unix.HUGETLBFS_MAGIC
}

// addMapped adds the files without a name in a list of mappings (proc_pid_maps(5)). A mapping does not tell
// the size of its file, which reaches at least to the mapping's end. Memory counts for the processes that
// use it.
func (u *unlinked) addMapped(maps string) {
	ends := map[diskuse.File]int64{}
	for line := range strings.Lines(maps) {
		if !strings.HasSuffix(line, " (deleted)\n") {
			continue
		}
		var first, last, offset, major, minor, ino uint64
		var access, name string
		n, _ := fmt.Sscanf(line, "%x-%x %s %x %x:%x %d %s", &first, &last, &access, &offset, &major, &minor, &ino, &name)
		f := diskuse.File{Dev: unix.Mkdev(uint32(major), uint32(minor)), Ino: ino}
		if n == 8 && !u.seen[f] && !isMemoryName(name) {
			ends[f] = max(ends[f], int64(min(offset+last-first, math.MaxInt64)))
		}
	}
	for f, end := range ends {
		u.seen[f] = true
		u.disk = diskuse.Add(u.disk, end)
	}
}

// isMemoryName reports whether a mapping's name is one of memory and of no disk (proc_pid_maps(5)).
func isMemoryName(name string) bool {
	return strings.HasPrefix(name, "/memfd:") || strings.HasPrefix(name, "/SYSV") || strings.HasPrefix(name, "/dev/")
}

// readTmpfs adds up the memory in the file systems that only the container has mounted, such as its /dev
// and /dev/shm, given the host's /proc, and the container's init in one with the container.
func readTmpfs(host, proc string, root int) (bytes int64) {
	counted := map[string]bool{}
	for _, m := range tmpfsIn(readText(filepath.Join(host, "self/mountinfo"))) {
		counted[m.Device] = true // the host's, with or without a bind in the container
	}
	namespaces := map[string]bool{}
	for _, dir := range commandDirs(proc, root) {
		namespace, err := os.Readlink(filepath.Join(dir, "ns/mnt"))
		if err != nil || namespaces[namespace] {
			continue
		}
		namespaces[namespace] = true
		for _, m := range tmpfsIn(readText(filepath.Join(dir, "mountinfo"))) {
			var disk unix.Statfs_t
			if counted[m.Device] || unix.Statfs(filepath.Join(dir, "root", m.At), &disk) != nil || !isMemory(disk) {
				continue
			}
			counted[m.Device] = true
			bytes += int64(disk.Blocks-disk.Bfree) * disk.Bsize //nolint:gosec // far below 2^63
		}
	}
	return bytes
}

// tmpfsIn lists the mounts of tmpfs in a table (proc_pid_mountinfo(5)).
func tmpfsIn(table string) []procstat.Mount {
	return slices.DeleteFunc(procstat.Mounts(table), func(m procstat.Mount) bool { return m.Type != "tmpfs" })
}

// commandDirs lists the directories in /proc of the processes of a container's command, given its init.
func commandDirs(proc string, root int) (dirs []string) {
	for _, p := range commandsOf(proc, root) {
		dirs = append(dirs, filepath.Join(proc, strconv.Itoa(p.PID)))
	}
	return dirs
}

// commandsOf lists the processes of a container's command, given its init.
func commandsOf(proc string, root int) (processes []procstat.Stat) {
	for _, p := range procstat.Tree(proc, root) {
		if isCommands(p, root) {
			processes = append(processes, p)
		}
	}
	return processes
}
