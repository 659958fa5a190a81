package azurebatch_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// engine is Docker's engine, and worker our cl-worker. TestMain removes both.
var (
	engine testenv.Docker
	worker = testenv.Program{Package: "../../cmd/cl-worker"}
)

func TestMain(m *testing.M) {
	code := m.Run()
	worker.Remove()
	if err := engine.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// smallRoot is an image without programs: a test binds this machine's into it.
func smallRoot() []byte {
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	for _, h := range []tar.Header{
		{Name: "usr/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "proc/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "sys/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "dev/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "run/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin"},
		{Name: "sbin", Typeflag: tar.TypeSymlink, Linkname: "usr/sbin"},
		{Name: "lib", Typeflag: tar.TypeSymlink, Linkname: "usr/lib"},
		{Name: "lib64", Typeflag: tar.TypeSymlink, Linkname: "usr/lib64"},
	} {
		_ = w.WriteHeader(&h) // into memory
	}
	const users = "root:x:0:0:root:/:/bin/sh\n"
	_ = w.WriteHeader(&tar.Header{Name: "etc/passwd", Mode: 0o644, Size: int64(len(users))})
	_, _ = w.Write([]byte(users))
	_ = w.Close()
	return data.Bytes()
}

// TestWorkersContainerNeedsEachOption runs "cl-worker probe" in containers of a real Docker: with the options of a task,
// and without one of them each time. The worker is root there, as --user root makes it.
func TestWorkersContainerNeedsEachOption(t *testing.T) {
	t.Parallel()
	testenv.PrivateNetwork(t)
	host, docker := engine.Host(t)
	run := func(stdin []byte, args ...string) string {
		cmd := exec.CommandContext(t.Context(), docker, args...)
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+host)
		cmd.Stdin = bytes.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
			t.Fatal(err)
		}
		return string(out)
	}
	run(smallRoot(), "import", "-", "azurebatch:1")
	program := worker.Path(t)
	probe := func(options []string) string {
		args := append([]string{"run", "--rm", "--network", "none", "--volume", "/usr:/usr:ro", "--volume", program + ":/cl-worker:ro", "--env", "PATH=/usr/bin:/usr/sbin"}, options...)
		return run(nil, append(args, "azurebatch:1", "/cl-worker", "probe")...)
	}
	s := newSite(t, 1)
	s.Shape.MemoryMB, s.Shape.CPUs = 512, 1
	p := s.start(t)
	body, _ := s.Service.Task(p.Name)
	options := strings.Fields(body["containerSettings"].(map[string]any)["containerRunOptions"].(string))
	whole := probe(options)
	for _, row := range []string{"user namespaces  yes", "/dev/fuse        yes", "overlay          yes", "network          yes", "builtin: nothing else was asked for"} {
		if !strings.Contains(whole, "\n"+row) && !strings.HasPrefix(whole, row) {
			t.Errorf("with all options there is no %q: %s", row, whole)
		}
	}
	for value, row := range map[string]string{
		"seccomp=unconfined":     "this node can run no container: start its init: this node does not let ordinary users make user namespaces",
		"systempaths=unconfined": "this node can run no container: this node does not let user namespaces mount /proc",
		"/dev/fuse":              "/dev/fuse        no",
		"/dev/net/tun":           "network          no   this node has no /dev/net/tun",
		"/tmp":                   "overlay          no   the scratch",
	} {
		i := slices.Index(options, value)
		if i < 1 {
			t.Errorf("%q have no %s", options, value)
			continue
		}
		if got := probe(slices.Concat(options[:i-1], options[i+1:])); !strings.Contains(got, row) {
			t.Errorf("without %s there is no %q: %s", value, row, got)
		}
	}
}
