package enter

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

func TestCgroupOfAContainerIsReadWhereItHasALimit(t *testing.T) {
	t.Parallel()
	limited := container.Usage{MemoryPeak: 4096, OOMKills: 2}
	for name, tt := range map[string]struct {
		cgroup, dir string
		files       map[string]string
		want        container.Usage
	}{
		"version 1, shown as the root": {"9:name=systemd:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc\n", "memory", v1("100000"), limited},
		"version 1, shown as it is":    {"4:cpu,memory:/docker/abc\n", "memory/docker/abc", v1("100000"), limited},
		"version 1 without a limit":    {"4:memory:/\n", "memory", v1("9223372036854771712"), container.Usage{MemoryPeak: 7}},
		"version 2 of its own":         {"0::/\n", ".", v2("100000"), limited},
		"version 2, the host's":        {"0::/system.slice/docker-abc.scope\n", "system.slice/docker-abc.scope", v2("100000"), limited},
		"version 2 without a limit":    {"0::/\n", ".", v2("max"), container.Usage{MemoryPeak: 7}},
		"none":                         {"", ".", nil, container.Usage{MemoryPeak: 7}},
	} {
		root := t.TempDir()
		write := func(file, text string) {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("proc/self/cgroup", tt.cgroup)
		for file, text := range tt.files {
			write(filepath.Join("sys/fs/cgroup", tt.dir, file), text)
		}
		got := container.Usage{MemoryPeak: 7}
		if addCgroup(&got, root); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

func v1(limit string) map[string]string {
	return map[string]string{
		"memory.limit_in_bytes": limit + "\n", "memory.max_usage_in_bytes": "4096\n",
		"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
	}
}

func v2(limit string) map[string]string {
	return map[string]string{"memory.max": limit + "\n", "memory.peak": "4096\n", "memory.events": "low 0\noom 5\noom_kill 2\noom_group_kill 0\n"}
}

func TestRefusedProcessesAreThoseOfTheContainersOwnLimit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cgroup, dir, limit string
		want               int64
	}{
		"version 1":                  {"8:pids:/docker/abc\n0::/\n", "pids", "4128", 3},
		"version 2":                  {"0::/\n", ".", "4128", 3},
		"version 2, the host's":      {"0::/system.slice/docker-abc.scope\n", "system.slice/docker-abc.scope", "4128", 3},
		"version 1, without a limit": {"8:pids:/\n", "pids", "max", 0},
		"none":                       {"", "elsewhere", "", 0},
	} {
		root := t.TempDir()
		for file, text := range map[string]string{
			"proc/self/cgroup": tt.cgroup,
			filepath.Join("sys/fs/cgroup", tt.dir, "pids.max"):    tt.limit + "\n",
			filepath.Join("sys/fs/cgroup", tt.dir, "pids.events"): "max 3\n",
		} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700), os.WriteFile(filepath.Join(root, file), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got := refusedProcesses(root); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestPresentUseIsThatOfTheContainersCgroups(t *testing.T) {
	t.Parallel()
	want := container.Usage{User: 1500 * time.Millisecond, System: 250 * time.Millisecond, Memory: 6000, MemoryPeak: 9000}
	for name, files := range map[string]map[string]string{
		"version 1": {
			"proc/self/cgroup": "4:memory:/k/p\n5:cpu,cpuacct:/k/p\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "100000\n", "sys/fs/cgroup/memory/memory.max_usage_in_bytes": "9000\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "8000\n", "sys/fs/cgroup/memory/memory.stat": "cache 1\ninactive_file 1\ntotal_inactive_file 2000\n",
			"sys/fs/cgroup/cpuacct/cpuacct.stat": "user 150\nsystem 25\n",
		},
		"version 2": {
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "100000\n", "sys/fs/cgroup/memory.peak": "9000\n", "sys/fs/cgroup/memory.current": "8000\n",
			"sys/fs/cgroup/memory.stat": "anon 6000\ninactive_file 2000\n", "sys/fs/cgroup/cpu.stat": "usage_usec 1750000\nuser_usec 1500000\nsystem_usec 250000\n",
		},
	} {
		root := t.TempDir()
		for file, text := range files {
			file = filepath.Join(root, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got := sample(root); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
