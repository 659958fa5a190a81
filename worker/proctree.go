package worker

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

// treeOf returns a /proc with the processes of a container and few others, and the container's init there. An init with a PID
// namespace of its own has such a /proc, in which it is process 1, so that a sample does not have to read all processes of the
// host. Otherwise it is the host's.
func treeOf(host string, init int) (proc string, root int) {
	own := filepath.Join(host, strconv.Itoa(init), "root/proc")
	outside, err := procstat.ReadIn(host, init)
	if err != nil {
		return host, init
	}
	inside, err := procstat.ReadIn(own, 1)
	if err != nil || inside.Start != outside.Start || inside.Name != outside.Name {
		return host, init
	}
	return own, 1
}

// readTree adds up the use of a container, given its init. Memory is that of the command's
// processes, and includes shared memory once for each. Processor time is that of the whole
// container, as in the exit record.
func readTree(proc string, root int) (use sample) {
	for _, p := range procstat.Tree(proc, root) {
		use.cpu.user += p.User + p.WaitedUser
		use.cpu.system += p.System + p.WaitedSystem
		if isCommands(p, root) {
			use.memory += p.Resident
		}
	}
	return use
}

// isCommands reports whether a process belongs to the command. The container's init, its first process if that is a copy of the init
// (package firstproc: Name), and programs that serve or unpack the image, or serve its network, do not.
func isCommands(p procstat.Stat, root int) bool {
	serves := slices.ContainsFunc([]string{"cl-first", "squashfuse", "unsquashfs", "slirp4netns", "pasta"}, func(name string) bool { return strings.HasPrefix(p.Name, name) })
	return p.PID != root && (p.Parent != root || !serves)
}

// readShares adds up the command's memory, with memory that its processes share divided among them. files is
// the memory of files of its own, mapped or not. It costs the kernel more than readTree.
func readShares(proc string, root int, files int64) int64 {
	var own, shared int64
	for _, p := range commandsOf(proc, root) {
		text := readText(filepath.Join(proc, strconv.Itoa(p.PID), "smaps_rollup")) // empty if the process has ended
		pss := fieldsOf(text)
		if mapped, known := pss["Pss_Shmem:"]; known { // since Linux 5.4
			own += pss["Pss:"] - mapped
			shared += mapped
		} else {
			own += pss["Pss:"]
		}
	}
	return own + max(shared, files)
}

// fieldsOf reads lines such as "Pss: 101 kB" into bytes.
func fieldsOf(text string) map[string]int64 {
	values := map[string]int64{}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 3 {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			values[fields[0]] = kib * 1024
		}
	}
	return values
}
