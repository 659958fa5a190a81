package worker

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// host is a recorded host in testdata.
func host(tb testing.TB, name string) (cgroups, mountinfo string) {
	tb.Helper()
	var texts [2]string
	for i, file := range []string{"cgroup", "mountinfo"} {
		text, err := os.ReadFile(filepath.Join("testdata", "proc", name, file))
		must(tb, err)
		texts[i] = string(text)
	}
	return texts[0], texts[1]
}

func TestCgroupOfAnEnginesContainerIsItsOwn(t *testing.T) {
	t.Parallel()
	const (
		id     = "5f2c0a1d3e4b5f2c0a1d3e4b5f2c0a1d3e4b5f2c0a1d3e4b5f2c0a1d3e4bffff"
		mounts = "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		own    = "4:memory:/user.slice/session-1\n0::/user.slice/session-1\n"
	)
	for cgroups, want := range map[string]string{
		"4:memory:/docker/" + id + "\n0::/x\n":                                 "/sys/fs/cgroup/memory/docker/" + id,
		"4:memory:/x/libpod_parent/libpod-" + id + "\n":                        "/sys/fs/cgroup/memory/x/libpod_parent/libpod-" + id,
		"0::/user.slice/user-1001.slice/libpod-" + id + ".scope/container\n":   "/sys/fs/cgroup/unified/user.slice/user-1001.slice/libpod-" + id + ".scope/container",
		"0::/system.slice/docker-" + id + ".scope\n":                           "/sys/fs/cgroup/unified/system.slice/docker-" + id + ".scope",
		"4:memory:/user.slice/podman.service\n0::/user.slice/podman.service\n": "", // of Podman without root
		own: "",
	} {
		if got := cgroupApart(cgroups, own, mounts, "memory"); got.dir != want {
			t.Errorf("%q: %q, want %q", cgroups, got.dir, want)
		}
	}
}

func TestCgroupOfTheJobIsFound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		host, controller, job, sluid string
		want                         cgroup
	}{
		{
			host: "v1-namespace", controller: "memory", job: "1",
			want: cgroup{dir: "/sys/fs/cgroup/memory/slurm_n3/uid_1001/job_1/step_batch/task_0", above: []string{
				"/sys/fs/cgroup/memory/slurm_n3/uid_1001/job_1/step_batch/task_0",
				"/sys/fs/cgroup/memory/slurm_n3/uid_1001/job_1/step_batch",
				"/sys/fs/cgroup/memory/slurm_n3/uid_1001/job_1",
			}},
		},
		{host: "v1-namespace", controller: "memory", job: "2"},
		{host: "v1-namespace", controller: "memory", job: ""},
		{
			host: "v1-bind", controller: "cpuacct", job: "46",
			want: cgroup{dir: "/sys/fs/cgroup/cpu,cpuacct/slurm/uid_1001/job_46", above: []string{
				"/sys/fs/cgroup/cpu,cpuacct/slurm/uid_1001/job_46",
			}},
		},
		{
			host: "v2", controller: "memory", job: "512",
			want: cgroup{dir: "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_512/step_batch/user/task_0", v2: true, above: []string{
				"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_512/step_batch/user/task_0",
				"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_512/step_batch/user",
				"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_512/step_batch",
				"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_512",
			}},
		},
		{ // from Slurm 26.05 on
			host: "v2-sluid", controller: "memory", job: "512", sluid: "sEKNKTV3WPV500",
			want: cgroup{dir: "/sys/fs/cgroup/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_batch/user/task_0", v2: true, above: []string{
				"/sys/fs/cgroup/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_batch/user/task_0",
				"/sys/fs/cgroup/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_batch/user",
				"/sys/fs/cgroup/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_batch",
				"/sys/fs/cgroup/system.slice/slurmstepd.scope/sEKNKTV3WPV500",
			}},
		},
		{ // the same with CgroupJobIdPaths=yes
			host: "v2", controller: "memory", job: "512", sluid: "sEKNKTV3WPV500",
			want: cgroup{dir: "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_512/step_batch/user/task_0", v2: true, above: []string{
				"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_512/step_batch/user/task_0",
				"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_512/step_batch/user",
				"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_512/step_batch",
				"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_512",
			}},
		},
		{host: "v2-sluid", controller: "memory", job: "512"},
		{host: "v2-sluid", controller: "memory", job: "512", sluid: "sEKNKTV3WPV501"},
		{host: "hybrid-without-slurm", controller: "memory", job: "1"},
	} {
		cgroups, mountinfo := host(t, test.host)
		got := findCgroup(cgroups, mountinfo, test.controller, jobDirs(test.job, test.sluid))
		if got.dir != test.want.dir || got.v2 != test.want.v2 || !slices.Equal(got.above, test.want.above) {
			t.Errorf("%s, %s of job %q %q: %+v, want %+v", test.host, test.controller, test.job, test.sluid, got, test.want)
		}
	}
}

func TestCgroupIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"v1/memory.limit_in_bytes":       "209715200\n",
		"v1/t/memory.limit_in_bytes":     "9223372036854771712\n",
		"v1/t/memory.usage_in_bytes":     "1000\n",
		"v1/t/memory.max_usage_in_bytes": "1200\n",
		"v1/t/memory.oom_control":        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
		"v1/t/memory.stat":               "cache 1\ninactive_file 5\ntotal_inactive_file 300\ntotal_active_file 100\n",
		"v1/t/cpuacct.stat":              "user 150\nsystem 25\n",
		"v2/memory.max":                  "100\n",
		"v2/t/memory.max":                "max\n",
		"v2/t/memory.current":            "1000\n",
		"v2/t/memory.peak":               "1200\n",
		"v2/t/memory.events":             "low 0\noom 1\noom_kill 3\noom_group_kill 0\n",
		"v2/t/memory.stat":               "anon 600\ninactive_file 300\nactive_file 100\n",
		"v2/t/cpu.stat":                  "usage_usec 1750000\nuser_usec 1500000\nsystem_usec 250000\n",
	} {
		file := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	want := sample{
		cpu:    cpuTime{user: 1500 * time.Millisecond, system: 250 * time.Millisecond},
		memory: 1000, memoryPeak: 1200, held: 600, oomKills: 3,
	}
	for version, limit := range map[string]int64{"v1": 200 << 20, "v2": 100} {
		g := newCgroup(filepath.Join(dir, version, "t"), version == "v2", 1)
		got := meter{cpu: g, memory: g}.read(0)
		if got != want {
			t.Errorf("%s: %+v, want %+v", version, got, want)
		}
		if got := g.memoryLimit(); got != limit {
			t.Errorf("%s: limit %d, want %d", version, got, limit)
		}
	}
}

func TestLeastMemoryLimitOfAllLevelsCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"v1/memory.limit_in_bytes":     "9223372036854771712\n",
		"v1/a/memory.limit_in_bytes":   "5000\n",
		"v1/a/b/memory.limit_in_bytes": "7000\n",
		"v2/a/memory.max":              "6000\n",
		"v2/a/b/memory.max":            "max\n",
	} {
		file := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	v1 := "31 26 0:28 / " + dir + "/v1 rw - cgroup cgroup rw,memory\n"
	v2 := "32 26 0:29 /top " + dir + "/v2 rw - cgroup2 cgroup2 rw\n" // the mount shows a subtree
	for name, test := range map[string]struct {
		cgroups, mountinfo string
		want               int64
	}{
		"version 1":     {"4:memory:/a/b\n3:cpuset:/\n", v1, 5000},
		"version 2":     {"0::/top/a/b\n", v2, 6000},
		"both":          {"4:memory:/a/b\n0::/top/a/b\n", v1 + v2, 5000},
		"no controller": {"3:cpuset:/a/b\n", v1, 0},
		"not mounted":   {"4:memory:/a/b\n0::/top/a/b\n", "", 0},
		"no limit":      {"4:memory:/\n", v1, 0},
	} {
		if got := leastMemoryLimit(test.cgroups, test.mountinfo); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestOwnProcessesAreMeasured(t *testing.T) {
	t.Parallel()
	use := readTree("/proc", os.Getppid())
	if shares := readShares("/proc", os.Getppid(), 0); use.memory < 1<<20 || shares < 1<<20 || shares > use.memory*2 {
		t.Errorf("this process and its kin use %d bytes, by its shares %d", use.memory, shares)
	}
}

func FuzzHostTexts(f *testing.F) {
	for _, name := range []string{"v1-namespace", "v1-bind", "v2", "v2-sluid", "hybrid-without-slurm"} {
		cgroups, mountinfo := host(f, name)
		f.Add(cgroups, mountinfo)
	}
	f.Fuzz(func(_ *testing.T, cgroups, mountinfo string) { // none may panic
		findCgroup(cgroups, mountinfo, "memory", jobDirs("1", "s0"))
	})
}
