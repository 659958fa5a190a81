package container_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// bomb is a program that starts processes until the kernel refuses one.
var bomb = testenv.Program{Package: "./testdata/bomb"}

// boundsProcesses skips a runtime that cannot bound the processes of a container here.
func (w testRuntime) boundsProcesses(t *testing.T) {
	t.Helper()
	var u unix.Utsname
	must(t, unix.Uname(&u))
	release := unix.ByteSliceToString(u.Release[:])
	var major, minor int
	_, err := fmt.Sscanf(release, "%d.%d", &major, &minor)
	must(t, err)
	switch {
	case w.plain():
		t.Skip("a program with privileges (setuid) makes no user namespace, in which the kernel would count processes")
	case w.Pods != nil:
		t.Skip("the kubelet of each node bounds the processes of a pod, and no request does")
	case w.Engine == nil && (major < 5 || major == 5 && minor < 16):
		t.Skipf("needs Linux 5.16 to bound the processes of all users of a container together, and this is %s", release)
	case w.Engine != nil && strings.HasSuffix(w.Engine.Program, "podman"):
		if controllers := w.call(t, "info", "--format", "{{.Host.CgroupControllers}}"); !strings.Contains(controllers, "pids") {
			t.Skipf("Podman can limit nothing here but %s", controllers)
		}
	}
}

// bombImage returns an image with bomb.
func bombImage(t *testing.T, w testRuntime) container.Container {
	t.Helper()
	program, err := os.ReadFile(bomb.Path(t))
	must(t, err)
	return w.image(t, shellConfig(), append(smallRoot(t), imagetest.Executable("bin/bomb", string(program)))...)
}

// A site may bound user namespaces. Then the container has one, and its processes are counted there.
func TestLimitOfProcessesHoldsWithOneUserNamespace(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	w := testRuntime{oneID: true}
	w.boundsProcesses(t)
	c := bombImage(t, w)
	c.MaxProcesses, c.Args = 100, []string{"/bin/bomb", "1000"}
	r := w.startOnHost(t, "echo 1 >/proc/sys/user/max_user_namespaces", c)
	answer := r.wait()
	if answer.Error != "" || !strings.HasPrefix(r.output(), "refused: resource temporarily unavailable\n") {
		t.Errorf("%+v, output %q", answer, r.output())
	}
}

// This test leans on the limit of processes alone: without one, its command starts all its processes.
func TestFidelityForkBombEndsAtTheLimitOfProcesses(t *testing.T) {
	t.Parallel()
	const limit, asked, around = 100, 1000, 64
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		w.boundsProcesses(t)
		c := bombImage(t, w)
		work := userDir(t)
		c.Binds = []container.Bind{{Source: work, Target: "/work"}}

		bombing := c
		bombing.MaxProcesses, bombing.Args = limit, []string{"/bin/bomb", fmt.Sprint(asked), "/work/end"}
		r := w.start(t, bombing)
		testenv.Await(t, "the bomb has ended", func() bool { return strings.Contains(r.output(), "began: ") }, r.output)

		// Another run, the host and this container's init go on.
		other := c
		other.MaxProcesses, other.ShellCommand = limit, "for i in 1 2 3 4 5 6 7 8 9; do sleep 0 & done; wait; echo fine"
		if got := w.shell(t, other); got != "fine\n" {
			t.Errorf("another run says %q", got)
		}
		must(t, os.WriteFile(filepath.Join(work, "end"), nil, 0o644))
		if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 0 {
			t.Errorf("the bomb's run ended with %+v", answer)
		} else if w.Engine != nil && answer.Exit.Usage.RefusedProcesses == 0 {
			t.Error("the engine's cgroup shows no refused process")
		}
		var began int
		if _, err := fmt.Sscanf(r.output(), "refused: resource temporarily unavailable\nbegan: %d\n", &began); err != nil {
			t.Fatalf("output %q: %v", r.output(), err)
		}
		if began < limit-10 || began > limit+around {
			t.Errorf("%d processes began, want about %d", began, limit)
		}

		unlimited := c
		unlimited.MaxProcesses, unlimited.Args = -1, []string{"/bin/bomb", fmt.Sprint(asked)}
		if got, want := w.shell(t, unlimited), fmt.Sprintf("began: %d\n", asked); got != want {
			t.Errorf("without a limit: %q, want %q", got, want)
		}
	})
}
