package worker

import (
	"cmp"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// sample is the use of an attempt at one moment. Unknown values are 0.
type sample struct {
	cpu        cpuTime
	memory     int64 // current
	memoryPeak int64
	// held is the part of memory that counts against a limit: without files that the kernel may
	// drop.
	held int64
	// files is the part that is in files of the container's own, if no cgroup counts it: /dev/shm, other
	// tmpfs, and memfd_create(2).
	files int64
	// oomKills counts the processes that the kernel killed for the memory limit.
	oomKills int64
}

// sampleOf is the use that a runtime tells.
func sampleOf(u container.Usage) sample {
	return sample{cpu: cpuTime{user: u.User, system: u.System}, memory: u.Memory, memoryPeak: u.MemoryPeak}
}

// meter measures an attempt. It uses the job's cgroups if Slurm makes them, and otherwise the
// processes of the container, as it does for a member of a pack, because the job's cgroups count all
// members together. An engine's container is not in the job's cgroups and has its own.
type meter struct {
	// host is the host's /proc, and proc one with the container's processes.
	host, proc  string
	cpu, memory cgroup
	engine      bool
}

func (r *attemptRun) meter() meter {
	m := meter{host: r.procDir(), proc: r.procDir(), engine: r.spec.Runtime.IsEngine()}
	if m.engine || r.place != nil {
		return m
	}
	m.memory, m.cpu = r.cgroupOfJob("memory"), r.cgroupOfJob("cpuacct")
	if s := m.read(0); s.memory == 0 {
		m.memory = cgroup{} // its controller is off, or its files are not visible here
	}
	return m
}

// ofContainer returns the meter for a running container, given its first process, and that process in the meter's own /proc.
func (m meter) ofContainer(root int) (meter, int) {
	if root == 0 {
		return m, 0
	}
	if !m.engine {
		m.proc, root = treeOf(m.host, root)
		return m, root
	}
	own, cgroups := readText(filepath.Join(m.host, "self/cgroup")), readText(filepath.Join(m.host, strconv.Itoa(root), "cgroup"))
	mounts := readText(filepath.Join(m.host, "self/mountinfo"))
	m.memory = cgroupApart(cgroups, own, mounts, "memory")
	m.cpu = cgroupApart(cgroups, own, mounts, "cpuacct")
	if s := m.read(0); s.memory == 0 {
		m.memory = cgroup{}
	}
	return m, root
}

// cgroupOfJob returns the job's cgroup with a controller.
func (w Worker) cgroupOfJob(controller string) cgroup {
	cgroups, mounts := readText(filepath.Join(w.procDir(), "self/cgroup")), readText(filepath.Join(w.procDir(), "self/mountinfo"))
	return findCgroup(cgroups, mounts, controller, jobDirs(w.Job, w.SLUID))
}

// procDir returns the host's /proc.
func (w Worker) procDir() string { return cmp.Or(w.proc, "/proc") }

// read takes a sample. root is the container's first process. If root is 0, read uses only cgroups.
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
		s.files = readTmpfs(m.host, m.proc, root) + memoryUnlinked(m.proc, root)
		s.memory = tree.memory + s.files
		s.held = s.memory
	}
	return s
}

// ownMemory is an upper bound of the memory of the worker, the container's init and squashfuse in
// the cgroup that they share with the command.
const ownMemory = 48 << 20

// above returns the command's memory if a sample exceeds a limit, and otherwise 0. Without a
// cgroup, a sample counts shared memory once for each process and once more for its file, so above
// measures again more exactly.
func (m meter) above(s sample, root int, limit int64) int64 {
	if limit <= 0 || s.held <= limit {
		return 0
	}
	used := s.held - ownMemory
	if m.memory.dir == "" {
		used = readShares(m.proc, root, s.files)
	}
	if used <= limit {
		return 0
	}
	return used
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// ticks converts the unit of processor time in proc(5), which is 1/100 s on all supported
// architectures.
func ticks(n int64) time.Duration { return time.Duration(n) * 10 * time.Millisecond }
