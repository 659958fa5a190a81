package engine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

var must = testenv.Must

// recorded reads the recorded output of an engine.
func recorded(tb testing.TB, name string) facts {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	must(tb, err)
	f, err := Runtime{Program: "/usr/bin/docker"}.parseInfo(string(text)) // Podman may have this name
	must(tb, err)
	return f
}

func TestLimitsAreThoseThatTheEngineCanSet(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for name, want := range map[string][]string{
		"docker-20.10":                  {"--memory", "117440512", "--memory-swap", "117440512", "--pids-limit", "132", "--cpuset-cpus", "0,2"},
		"docker-no-swap":                {"--memory", "117440512", "--pids-limit", "132", "--cpuset-cpus", "0,2"},
		"podman-4.3-rootless":           nil,
		"docker-of-podman-4.3-rootless": nil, // it answers Docker's client that it could
		"docker-of-podman-4.3-root":     {"--memory", "117440512", "--memory-swap", "117440512", "--pids-limit", "132", "--cpuset-cpus", "0,2"},
		"podman-4.3-v2":                 {"--memory", "117440512", "--memory-swap", "117440512", "--pids-limit", "132"},
	} {
		if got := recorded(t, name).limitOptions(96<<20, 100, "0,2"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		unlimited := []string{"--pids-limit", "-1"}
		if want == nil {
			unlimited = nil
		}
		if got := recorded(t, name).limitOptions(0, 0, ""); !slices.Equal(got, unlimited) {
			t.Errorf("%s without limits: %q, want %q", name, got, unlimited)
		}
	}
}

func TestRootOfAnEnginesContainersIsKnown(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for name, want := range map[string]bool{"docker-20.10": false, "podman-4.3-rootless": true, "docker-of-podman-4.3-rootless": true, "docker-of-podman-4.3-root": false} {
		if got := recorded(t, name).userns; got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for options, want := range map[string]bool{
		`["name=seccomp,profile=default"]`: false, `["name=seccomp,profile=default","name=rootless"]`: true, `["name=userns"]`: true,
	} {
		f, err := readDockerInfo(`{"SecurityOptions":` + options + `}`)
		if must(t, err); f.userns != want {
			t.Errorf("%s: %v", options, f.userns)
		}
	}
}

func TestProcessorsAreListedIfTheyAreNotAll(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		own          []int
		online, want string
	}{
		{[]int{0, 1}, "0-1", ""},
		{[]int{1}, "0-1", "1"},
		{[]int{0, 2, 70}, "0-3,64-127", "0,2,70"},
		{[]int{0, 1, 8}, "0-1,8", ""},
	} {
		if got := cpuList(tt.own, tt.online); got != tt.want {
			t.Errorf("%v of %s: %q, want %q", tt.own, tt.online, got, tt.want)
		}
	}
}

// The program docker may be Podman's, or find Podman's socket.
func TestPodmanIsKnownBehindTheNameOfDocker(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for name, want := range map[string]bool{
		"docker-20.10": false, "docker-28.3-cdi": false, "podman-4.3-v2": true, "docker-of-podman-4.3-rootless": true, "docker-of-podman-4.3-root": true,
	} {
		if got := recorded(t, name).podman; got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
