package worker

import (
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
	"github.com/cl-slurm/cl-slurm/internal/procstat"
	"github.com/cl-slurm/cl-slurm/internal/smallfile"
)

// cgroup is a control group with the worker and all processes that it starts, and without those of
// other jobs. The zero value means that there is none.
type cgroup struct {
	dir string
	v2  bool
	// above lists the directories from dir up to the job's. Their limits apply, too.
	above []string
}

// findCgroup finds the job's cgroup for a controller, from the texts of /proc/self/cgroup and
// /proc/self/mountinfo (cgroups(7), proc(5)). One level of its path must be a directory of the job.
// A cgroup without such a level may have processes of others, so findCgroup ignores it.
//
// A mount may show a subtree of its hierarchy. Then findCgroup removes the subtree's path from the
// cgroup's. If several mounts are on one place, the last is visible.
func findCgroup(cgroups, mountinfo, controller string, jobDirs []string) cgroup {
	for name, v2 := range memberships(cgroups, controller) {
		depth := levelsBelow(name, jobDirs)
		if depth < 0 {
			continue
		}
		if dir := mountedAt(mountinfo, name, controller, v2); dir != "" {
			return newCgroup(dir, v2, depth)
		}
	}
	return cgroup{}
}

// memberships reads the text of /proc/PID/cgroup. It yields the paths of the process's cgroups of a
// controller of version 1, and of version 2.
func memberships(cgroups, controller string) iter.Seq2[string, bool] {
	return func(yield func(name string, v2 bool) bool) {
		for line := range strings.Lines(cgroups) {
			_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			controllers, name, ok := strings.Cut(rest, ":")
			v2 := controllers == ""
			if ok && (v2 || slices.Contains(strings.Split(controllers, ","), controller)) && !yield(name, v2) {
				return
			}
		}
	}
}

// ofOneContainer matches a cgroup that an engine made for one container, whose id is in its name or in that of a
// cgroup above: docker/ID, docker-ID.scope, libpod-ID.
var ofOneContainer = lazyregexp.New(`\b[0-9a-f]{64}\b`)

// cgroupApart finds the cgroup of an engine's container for a controller, unless this process is in it,
// too. cgroups and own are the texts of /proc/PID/cgroup of the container's first process and of this one. A
// version 1 hierarchy of the controller is preferred to version 2. An engine without root may leave its
// containers in its own cgroup, which is no container's.
func cgroupApart(cgroups, own, mountinfo, controller string) (g cgroup) {
	type membership struct {
		name string
		v2   bool
	}
	mine := map[membership]bool{}
	for name, v2 := range memberships(own, controller) {
		mine[membership{name, v2}] = true
	}
	for name, v2 := range memberships(cgroups, controller) {
		if mine[membership{name, v2}] || v2 && g.dir != "" || !ofOneContainer().MatchString(name) {
			continue
		}
		if dir := mountedAt(mountinfo, name, controller, v2); dir != "" {
			g = newCgroup(dir, v2, 0)
		}
	}
	return g
}

// jobDirs returns the possible names of the directory of a job's cgroup: job_ID, or from Slurm
// 26.05 on the SLUID, unless CgroupJobIdPaths=yes (Slurm src/plugins/cgroup/v2/cgroup_v2.c:
// cgroup_p_step_create). Both arguments may be empty.
func jobDirs(id, sluid string) []string {
	var names []string
	if id != "" {
		names = append(names, "job_"+id)
	}
	if sluid != "" {
		names = append(names, sluid)
	}
	return names
}

// MemoryCgroup returns the directory of the memory cgroup of the job with this SLURM_JOB_ID and
// SLURM_JOB_SLUID, if this process runs in it, and its limit in bytes. Otherwise, or without a
// limit, they are empty and 0.
func MemoryCgroup(id, sluid string) (dir string, limit int64) {
	g := Worker{Job: id, SLUID: sluid}.cgroupOfJob("memory")
	if g.dir == "" {
		return "", 0
	}
	return g.dir, g.memoryLimit()
}

// MemoryLimit returns the least memory limit, in bytes, of the cgroups of this process, which may
// also hold others. It returns 0 if there is none.
func MemoryLimit() int64 {
	return leastMemoryLimit(readText("/proc/self/cgroup"), readText("/proc/self/mountinfo"))
}

func leastMemoryLimit(cgroups, mountinfo string) int64 {
	var least int64
	for name, v2 := range memberships(cgroups, "memory") {
		dir := mountedAt(mountinfo, name, "memory", v2)
		if dir == "" {
			continue
		}
		// The levels above the mount have no such file.
		limit := newCgroup(dir, v2, strings.Count(dir, "/")).memoryLimit()
		if limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

func newCgroup(dir string, v2 bool, depth int) cgroup {
	g := cgroup{dir: dir, v2: v2}
	for range depth + 1 {
		g.above = append(g.above, dir)
		dir = filepath.Dir(dir)
	}
	return g
}

// mountedAt returns the directory of a cgroup, or "" if it is not mounted.
func mountedAt(mountinfo, name, controller string, v2 bool) string {
	dir := ""
	for _, m := range procstat.Mounts(mountinfo) {
		if v2 && m.Type != "cgroup2" || !v2 && (m.Type != "cgroup" || !slices.Contains(m.FileSystemOptions, controller)) {
			continue
		}
		root := strings.TrimSuffix(m.Root, "/")
		if below, ok := strings.CutPrefix(name+"/", root+"/"); ok {
			dir = path.Join(m.At, below)
		}
	}
	return dir
}

// unlimited is not more than the number that version 1 shows for no limit (Linux: PAGE_COUNTER_MAX
// pages).
const unlimited = 1 << 62

// memoryLimit returns the limit that applies in the cgroup, or 0 if the job has none.
func (g cgroup) memoryLimit() int64 {
	name := "memory.limit_in_bytes"
	if g.v2 {
		name = "memory.max"
	}
	var limit int64
	for _, dir := range g.above {
		n := readNumber(filepath.Join(dir, name)) // 0 for "max"
		if n > 0 && n < unlimited && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return limit
}

// enforces reports whether the kernel limits the cgroup to about the memory that a bundle asked
// for. A job has somewhat more, for the worker. If it has much more, such as a whole node, the
// kernel does not limit the bundle.
func (g cgroup) enforces(asked int64) bool {
	const overhead = 256 << 20
	limit := g.memoryLimit()
	return limit > 0 && limit <= asked+asked/4+overhead
}

// readMemory reads the current and the largest use of memory, both with cached files, and the part
// of the current use that the kernel cannot free by dropping files.
func (g cgroup) readMemory(s *sample) {
	names := [...]string{"memory.usage_in_bytes", "memory.max_usage_in_bytes", "total_"}
	if g.v2 {
		names = [...]string{"memory.current", "memory.peak", ""}
	}
	s.memory = readNumber(filepath.Join(g.dir, names[0]))
	s.memoryPeak = readNumber(filepath.Join(g.dir, names[1])) // version 2 has it from Linux 5.19 on
	s.oomKills = g.readOOMKills()
	stat := readTable(filepath.Join(g.dir, "memory.stat"))
	s.held = max(0, s.memory-stat[names[2]+"inactive_file"]-stat[names[2]+"active_file"])
}

// readOOMKills reads the number of processes that the kernel has killed for memory.
func (g cgroup) readOOMKills() int64 {
	name := "memory.oom_control"
	if g.v2 {
		name = "memory.events"
	}
	return readTable(filepath.Join(g.dir, name))["oom_kill"]
}

// readCPU reads the processor time of all current and former processes of the cgroup.
func (g cgroup) readCPU() cpuTime {
	if g.v2 {
		stat := readTable(filepath.Join(g.dir, "cpu.stat"))
		return cpuTime{user: microseconds(stat["user_usec"]), system: microseconds(stat["system_usec"])}
	}
	stat := readTable(filepath.Join(g.dir, "cpuacct.stat"))
	return cpuTime{user: ticks(stat["user"]), system: ticks(stat["system"])}
}

// readText reads a file of the kernel. It returns "" if it cannot.
func readText(file string) string {
	text, _ := smallfile.Read(file) // text is empty after an error
	return string(text)
}

// readNumber reads a file with one number. It returns 0 for any other text.
func readNumber(file string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(readText(file)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readTable reads a file of names and numbers.
func readTable(file string) map[string]int64 {
	table := map[string]int64{}
	for line := range strings.Lines(readText(file)) {
		name, value, _ := strings.Cut(line, " ")
		if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil {
			table[name] = n
		}
	}
	return table
}

// levelsBelow returns the number of levels between a directory of one of these names and the end of
// the path, or -1 if there is no such directory.
func levelsBelow(name string, dirs []string) int {
	parts := strings.Split(strings.TrimSuffix(name, "/"), "/")
	i := slices.IndexFunc(parts, func(part string) bool { return slices.Contains(dirs, part) })
	if i < 0 {
		return -1
	}
	return len(parts) - 1 - i
}
