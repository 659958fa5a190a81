package azurebatch_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch/batchtest"
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

// TestWorkersContainerNeedsEachOption runs "cl-worker probe" in containers of a real Docker: with the options of a task,
// and without one of them each time. The worker is root there, as --user root makes it.
func TestWorkersContainerNeedsEachOption(t *testing.T) {
	t.Parallel()
	testenv.PrivateNetwork(t)
	host, docker := engine.Host(t)
	d := batchtest.Docker{Host: host, Client: docker, Worker: worker.Path(t)}
	d.Prepare(t)
	probe := func(options []string) string {
		out, err := d.Command(t.Context(), batchtest.Image, options, nil, []string{"cl-worker", "probe"}).CombinedOutput()
		if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
			t.Fatal(err)
		}
		return string(out)
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
		"seccomp=unconfined":     "this node can run no container: start its init: a system call filter (seccomp) of this process forbids user namespaces",
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
