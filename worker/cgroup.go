package worker

import (
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/smallfile"
)

// cgroup is a control group that holds the worker and everything that it starts,
// and nothing of other jobs. The zero value means that there is none.
type cgroup struct {
	dir string
	v2  bool
	// above lists the directories from dir up to the job's. Their limits hold here
	// too.
	above []string
}

// findCgroup finds the job's cgroup for a controller, given the texts of
// /proc/self/cgroup and /proc/self/mountinfo (cgroups(7), proc(5)). One level of
// the path is a directory of the job's own; a cgroup without such a level may hold
// other processes too and is ignored.
//
// A mount may begin below the root of its hierarchy; that subtree's path is then
// removed from the cgroup's. Of several mounts over each other the last is
// visible.
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

// memberships reads /proc/self/cgroup: the paths of the cgroups of this process that a
// controller of version 1 has, and that of version 2.
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

// cgroupApart finds the cgroup of another process for a controller, unless that is this
// process's own too. cgroups and own are the texts of both processes' /proc/PID/cgroup.
// A version 1 hierarchy of the controller comes before version 2's.
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
		if mine[membership{name, v2}] || v2 && g.dir != "" {
			continue
		}
		if dir := mountedAt(mountinfo, name, controller, v2); dir != "" {
			g = newCgroup(dir, v2, 0)
		}
	}
	return g
}

// jobDirs returns the names that the directory of a job's cgroup may have: job_ID, or
// from Slurm 26.05 on the SLUID, unless CgroupJobIdPaths=yes (Slurm
// src/plugins/cgroup/v2/cgroup_v2.c: cgroup_p_step_create). Both texts may be empty.
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

// MemoryCgroup returns the directory of the memory cgroup of the job with this
// SLURM_JOB_ID and SLURM_JOB_SLUID, in which this process runs, and its limit in bytes.
// They are empty and 0 where there is none.
func MemoryCgroup(id, sluid string) (dir string, limit int64) {
	g := findCgroup(readText("/proc/self/cgroup"), readText("/proc/self/mountinfo"), "memory", jobDirs(id, sluid))
	if g.dir == "" {
		return "", 0
	}
	return g.dir, g.memoryLimit()
}

// MemoryLimit returns the least memory limit in bytes of the cgroups that this process is in, whoever
// else is in them; 0 if there is none.
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

// mountedAt returns the directory of a cgroup, or nothing.
func mountedAt(mountinfo, name, controller string, v2 bool) string {
	dir := ""
	for line := range strings.Lines(mountinfo) {
		mount, source, ok := strings.Cut(line, " - ")
		fields, of := strings.Fields(mount), strings.Fields(source)
		if !ok || len(fields) < 5 || len(of) < 3 {
			continue
		}
		if v2 && of[0] != "cgroup2" {
			continue
		}
		if !v2 && (of[0] != "cgroup" || !slices.Contains(strings.Split(of[2], ","), controller)) {
			continue
		}
		root := strings.TrimSuffix(fields[3], "/")
		if below, ok := strings.CutPrefix(name+"/", root+"/"); ok {
			dir = path.Join(fields[4], below)
		}
	}
	return dir
}

// unlimited is at most what version 1 shows where there is no limit
// (Linux: PAGE_COUNTER_MAX pages).
const unlimited = 1 << 62

// memoryLimit is the limit that holds in the cgroup, or 0 when the job has
// none.
func (g cgroup) memoryLimit() int64 {
	name := "memory.limit_in_bytes"
	if g.v2 {
		name = "memory.max"
	}
	var limit int64
	for _, dir := range g.above {
		n := readNumber(filepath.Join(dir, name)) // "max" is no number
		if n > 0 && n < unlimited && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return limit
}

// enforces reports whether the kernel limits the cgroup to about what a bundle
// asked for. A job has somewhat more, for the worker. A job that has much more,
// such as a whole node, does not limit the bundle.
func (g cgroup) enforces(asked int64) bool {
	const overhead = 256 << 20
	limit := g.memoryLimit()
	return limit > 0 && limit <= asked+asked/4+overhead
}

// readMemory reads the present and the largest use of memory, both with cached
// files, and how much of the present use the kernel cannot free by dropping
// files.
func (g cgroup) readMemory(s *sample) {
	names := [...]string{"memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control", "total_"}
	if g.v2 {
		names = [...]string{"memory.current", "memory.peak", "memory.events", ""}
	}
	s.memory = readNumber(filepath.Join(g.dir, names[0]))
	s.memoryPeak = readNumber(filepath.Join(g.dir, names[1])) // version 2 has it since Linux 5.19
	s.oomKills = readTable(filepath.Join(g.dir, names[2]))["oom_kill"]
	stat := readTable(filepath.Join(g.dir, "memory.stat"))
	s.held = max(0, s.memory-stat[names[3]+"inactive_file"]-stat[names[3]+"active_file"])
}

// readCPU reads the processor time of all processes that are or were in the
// cgroup.
func (g cgroup) readCPU() cpuTime {
	if g.v2 {
		stat := readTable(filepath.Join(g.dir, "cpu.stat"))
		return cpuTime{user: microseconds(stat["user_usec"]), system: microseconds(stat["system_usec"])}
	}
	stat := readTable(filepath.Join(g.dir, "cpuacct.stat"))
	return cpuTime{user: ticks(stat["user"]), system: ticks(stat["system"])}
}

// readText reads a file of the kernel. A missing file is empty.
func readText(file string) string {
	text, _ := smallfile.Read(file) // no content where there is an error
	return string(text)
}

// readNumber reads a file of one number; anything else is 0.
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

// levelsBelow returns how many levels a path ends below a directory of one of these
// names, or -1 if it does not.
func levelsBelow(name string, dirs []string) int {
	parts := strings.Split(strings.TrimSuffix(name, "/"), "/")
	i := slices.IndexFunc(parts, func(part string) bool { return slices.Contains(dirs, part) })
	if i < 0 {
		return -1
	}
	return len(parts) - 1 - i
}
