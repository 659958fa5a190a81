package worker

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

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

// isCommands reports whether a process belongs to the command. The container's init and programs
// that serve or unpack the image do not.
func isCommands(p procstat.Stat, root int) bool {
	images := strings.HasPrefix(p.Name, "squashfuse") || p.Name == "unsquashfs"
	return p.PID != root && (p.Parent != root || !images)
}

// readShares adds up the command's memory, with shared memory divided among its processes. It costs
// the kernel more than readTree.
func readShares(proc string, root int) int64 {
	var sum int64
	for _, p := range procstat.Tree(proc, root) {
		if !isCommands(p, root) {
			continue
		}
		text := readText(filepath.Join(proc, strconv.Itoa(p.PID), "smaps_rollup")) // empty if the process has ended
		for line := range strings.Lines(text) {
			fields := strings.Fields(line)
			if len(fields) == 3 && fields[0] == "Pss:" {
				kib, _ := strconv.ParseInt(fields[1], 10, 64)
				sum += kib * 1024
			}
		}
	}
	return sum
}
