package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// notingClient returns a client of Docker that writes the arguments of its run to a file, one on
// each line, and runs nothing.
const notingClient = `#!/bin/sh
case "$1" in
image) echo '{"Env":["PATH=/bin"]}' ;;
info) cat "$INFO" ;;
run) printf '%s\n' "$@" >"$NOTED"; exit 125 ;;
esac
`

func TestEngineThatCannotBeUsedIsTheHostsFault(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "docker")
	testenv.WriteProgram(t, program, []byte("#!/bin/sh\necho 'Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?' >&2; exit 1\n"))
	_, err := Runtime{Program: program}.Run(t.Context(), container.Container{PinnedReference: "a/b", ShellCommand: "true", PrivateDir: t.TempDir()})
	var host *container.HostError
	if !errors.As(err, &host) || host.Error() != "docker cannot be used: docker image: Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?" {
		t.Errorf("error %v", err)
	}
}

func TestOptionsOfARunAreWhatTheEngineCanDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, noted := filepath.Join(dir, "docker"), filepath.Join(dir, "noted")
	testenv.WriteProgram(t, program, []byte(notingClient))
	info, err := filepath.Abs("testdata/docker-no-swap.json")
	must(t, err)
	e := Runtime{Program: program, Helper: "/bin/true", Env: []string{"PATH=/bin", "INFO=" + info, "NOTED=" + noted}}
	_, err = e.Run(t.Context(), container.Container{
		PinnedReference: "a/b@sha256:1", ShellCommand: "echo secret", Env: []string{"TOKEN=secret"}, PrivateDir: dir,
		MemoryBytes: 84 << 20, ShmBytes: 1 << 20, Devices: []string{"/dev/null"},
	})
	if want := "run container of a/b@sha256:1: docker could not set the container up: exit status 125"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	text, err := os.ReadFile(noted)
	must(t, err)
	args := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, want := range [][]string{{"--memory", "104857600"}, {"--shm-size", "1048576"}, {"--device", "/dev/null"}, {"--network", "none"}, {"--pull", "never"}, {"a/b@sha256:1", "container-enter"}} {
		if i := slices.Index(args, want[0]); i < 0 || i+1 >= len(args) || args[i+1] != want[1] {
			t.Errorf("no %q in %q", want, args)
		}
	}
	if slices.Contains(args, "--memory-swap") || strings.Contains(string(text), "secret") {
		t.Errorf("arguments %q", args)
	}
}

// Some builders write null for an image's configuration.
func TestImageWithoutAConfigurationHasNoEnvironment(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "docker")
	testenv.WriteProgram(t, program, []byte("#!/bin/sh\necho null\n"))
	if env, err := (Runtime{Program: program}).imageEnv(t.Context(), "a/b"); err != nil || env != nil {
		t.Errorf("%q, %v", env, err)
	}
}
