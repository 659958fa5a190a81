package worker

import (
	"cmp"
	"path/filepath"
	"time"
)

// sample is what a run uses at a moment. What is not known is 0.
type sample struct {
	cpu        cpuTime
	memory     int64 // now
	memoryPeak int64
	// held is what of memory counts against a limit: without files that the
	// kernel may drop.
	held int64
	// oomKills counts the processes that were killed for the memory limit.
	oomKills int64
}

// meter measures a run: by the job's cgroups where Slurm has made such, else
// by the processes of the container.
type meter struct {
	proc        string
	cpu, memory cgroup
}

func (r *run) meter() meter {
	m := meter{proc: r.procDir()}
	cgroups := readText(filepath.Join(m.proc, "self/cgroup"))
	mounts := readText(filepath.Join(m.proc, "self/mountinfo"))
	m.memory = findCgroup(cgroups, mounts, "memory", r.Job)
	m.cpu = findCgroup(cgroups, mounts, "cpuacct", r.Job)
	if s := m.read(0); s.memory == 0 {
		m.memory = cgroup{} // its controller is not on, or its files are not seen here
	}
	return m
}

// procDir is where the processes of the host are seen.
func (w Worker) procDir() string { return cmp.Or(w.proc, "/proc") }

// read takes a sample. root is the container's first process, or 0 when there
// is none: then only cgroups are read.
func (m meter) read(root int) sample {
	var s sample
	if m.memory.dir != "" {
		m.memory.readMemory(&s)
	}
	if m.cpu.dir != "" {
		s.cpu = m.cpu.readCPU()
	}
	if root == 0 || s.memory > 0 && m.cpu.dir != "" {
		return s
	}
	tree := readTree(m.proc, root)
	if m.cpu.dir == "" {
		s.cpu = tree.cpu
	}
	if s.memory == 0 {
		s.memory, s.held = tree.memory, tree.memory
	}
	return s
}

// ownMemory is what the worker, the container's init and the server of its
// image may take of a cgroup that the command shares with them.
const ownMemory = 48 << 20

// above is what the command uses of memory where a sample passes a limit that
// nothing else enforces, else 0. Memory that processes share was counted once
// for each of them where there is no cgroup, so that is looked at more closely
// first.
func (m meter) above(s sample, root int, limit int64) int64 {
	if limit <= 0 || s.held <= limit {
		return 0
	}
	used := s.held - ownMemory
	if m.memory.dir == "" {
		used = readShares(m.proc, root)
	}
	if used <= limit {
		return 0
	}
	return used
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// ticks converts the unit of processor time in proc(5), which is 1/100 s on
// every architecture that this runs on.
func ticks(n int64) time.Duration { return time.Duration(n) * 10 * time.Millisecond }
