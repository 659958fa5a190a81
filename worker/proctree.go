package worker

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// process is a line of /proc/PID/stat.
type process struct {
	pid, parent int
	name        string
	cpu         cpuTime // with that of ended children that it waited for
	resident    int64
}

// readTree adds up what a container uses, given its init. Memory is that of the
// command's processes; shared memory counts for each of them. Processor time is
// that of the whole container, as in the exit record.
func readTree(proc string, root int) (use sample) {
	for _, p := range descendants(readProcesses(proc), root) {
		use.cpu.user += p.cpu.user
		use.cpu.system += p.cpu.system
		if p.isCommands(root) {
			use.memory += p.resident
		}
	}
	return use
}

// isCommands reports whether a process belongs to the command: it is neither the
// container's init nor a program that serves or unpacks the image.
func (p process) isCommands(root int) bool {
	images := strings.HasPrefix(p.name, "squashfuse") || p.name == "unsquashfs"
	return p.pid != root && (p.parent != root || !images)
}

// readShares adds up the command's memory with shared memory divided among its
// processes. That costs the kernel more than readTree.
func readShares(proc string, root int) int64 {
	var sum int64
	for _, p := range descendants(readProcesses(proc), root) {
		if !p.isCommands(root) {
			continue
		}
		text := readText(filepath.Join(proc, strconv.Itoa(p.pid), "smaps_rollup")) // empty when it has ended
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

// descendants returns the processes of a tree, including its root.
func descendants(all []process, root int) []process {
	children := map[int][]process{}
	var tree []process
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
		if p.pid == root {
			tree = append(tree, p)
		}
	}
	for i := 0; i < len(tree) && i < len(all); i++ {
		tree = append(tree, children[tree[i].pid]...)
	}
	return tree
}

func readProcesses(proc string) []process {
	d, err := os.Open(proc)
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []process
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		if p, ok := parseStat(readText(filepath.Join(proc, name, "stat"))); ok {
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)). A program's name, in
// parentheses, may hold anything.
func parseStat(text string) (process, bool) {
	pid, rest, _ := strings.Cut(text, " (")
	end := strings.LastIndexByte(rest, ')')
	fields := strings.Fields(rest[end+1:])
	if end < 0 || len(fields) < 22 {
		return process{}, false
	}
	// fields[0] is the third there, the state.
	numbers := make([]int64, 0, 7)
	for _, field := range slices.Concat([]string{pid}, fields[1:2], fields[11:15], fields[21:22]) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return process{}, false
		}
		numbers = append(numbers, n)
	}
	return process{
		pid:      int(numbers[0]),
		parent:   int(numbers[1]),
		name:     rest[:end],
		cpu:      cpuTime{user: ticks(numbers[2] + numbers[4]), system: ticks(numbers[3] + numbers[5])},
		resident: numbers[6] * int64(os.Getpagesize()),
	}, true
}
