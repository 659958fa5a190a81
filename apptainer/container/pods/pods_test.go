package pods_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/kubetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestCommandRunsInAPodOfItsImage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	testenv.Must(t, os.WriteFile(filepath.Join(s.dir, "input"), []byte("of a dependency\n"), 0o600))
	testenv.Must(t, os.Mkdir(filepath.Join(s.dir, "work"), 0o700))
	r := s.start("id -u; cat /in; echo $FROM_IMAGE $MORE; touch result; touch /in; env; echo end >&2; exit 3", func(c *container.Container) {
		c.Dir, c.Env = "/0x1", []string{"MORE=secret"}
		c.Binds = []container.Bind{{Source: filepath.Join(s.dir, "input"), Target: "/in", ReadOnly: true}, {Source: filepath.Join(s.dir, "work"), Target: "/0x1"}}
	})
	exit, err := r.wait()
	if err != nil || exit.Code != 3 || exit.Signal != 0 {
		t.Fatalf("%+v, %v; output %q", exit, err, r.output())
	}
	lines := r.output()
	for _, want := range []string{"0\nof a dependency\nyes secret\n", "/in': Read-only file system", "HOME=/root\n", "end\n"} {
		if !strings.Contains(lines, want) {
			t.Errorf("no %q in the output %q", want, lines)
		}
	}
	for _, foreign := range []string{"KUBERNETES_", "HOSTNAME="} {
		if strings.Contains(lines, foreign) {
			t.Errorf("%q in the output %q", foreign, lines)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "work/result")); err != nil {
		t.Error(err)
	}
	if left := kubetest.Kubectl(t, "-n", s.namespace, "get", "pods", "-o", "name"); left != "" {
		t.Errorf("it left %s", left)
	}
}

func TestEndOfContextTerminatesTheCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.start("trap 'echo saved; exit 5' TERM; echo begun; sleep 1000 & wait", nil)
	r.awaitBegun()
	r.stop()
	if exit, err := r.wait(); err != nil || exit.Code != 5 || !strings.Contains(r.output(), "saved") {
		t.Errorf("%+v, %v; output %q", exit, err, r.output())
	}
}

func TestCommandThatIgnoresTermIsKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.start("trap '' TERM; echo begun; while :; do sleep 1000; done", nil)
	r.awaitBegun()
	r.stop()
	if exit, err := r.wait(); err != nil || exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v, %v; output %q", exit, err, r.output())
	}
}

func TestMemoryLimitIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.start("echo begun; tail /dev/zero", func(c *container.Container) { c.MemoryBytes = 64 << 20 })
	if exit, err := r.wait(); err != nil || exit.Code == 0 || exit.Usage.OOMKills == 0 || exit.Usage.MemoryPeak < 64<<20 {
		t.Errorf("%+v, %v; output %q", exit, err, r.output())
	}
}

func TestImageThatKubernetesCannotUseIsNamedInItsWords(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.start("true", func(c *container.Container) { c.PinnedReference = "Upper/Case" })
	_, err := r.wait()
	var request *container.RequestError
	if !errors.As(err, &request) || !strings.Contains(err.Error(), "must be lowercase (InvalidImageName)") {
		t.Errorf("error %v", err)
	}
}

func TestRegistryThatDoesNotAnswerIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.start("true", func(c *container.Container) { c.PinnedReference = "127.0.0.1:1/x:1" })
	r.awaitWait("cannot pull the image: ")
	r.stop()
	if _, err := r.wait(); err == nil {
		t.Error("it ended well")
	}
}

func TestPodWithoutANodeWaitsInTheSchedulersWords(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.runtime.GPUs = 16
	r := s.start("true", nil)
	r.awaitWait("Insufficient nvidia.com/gpu")
	r.stop()
	if _, err := r.wait(); err == nil {
		t.Error("it ended well")
	}
	if left := kubetest.Kubectl(t, "-n", s.namespace, "get", "pods", "-o", "name"); left != "" {
		t.Errorf("it left %s", left)
	}
}

func TestPodThatSomebodyDeletesIsNoFaultOfTheCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.start("echo begun; sleep 1000", nil)
	r.awaitBegun()
	kubetest.Kubectl(t, "-n", s.namespace, "delete", "pods", "--all", "--wait=false")
	if exit, err := r.wait(); err == nil || !strings.Contains(err.Error(), "somebody deleted the pod cl-run-") {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestUseOfARunningCommandIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	used := make(chan container.Usage, 100)
	r := s.start("while :; do :; done", func(c *container.Container) {
		c.MemoryBytes = 64 << 20
		c.OnUsage = func(u container.Usage) { used <- u }
	})
	for {
		select {
		case u := <-used:
			if u.User > 0 && u.Memory > 0 && u.MemoryPeak > 0 {
				return
			}
		case <-r.ended:
			t.Fatalf("%+v, %v", r.exit, r.err)
		}
	}
}

func TestUsedUpQuotaIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	kubetest.Kubectl(t, "-n", s.namespace, "create", "quota", "none", "--hard=pods=0")
	testenv.Await(t, "the quota counts", func() bool {
		return kubetest.Kubectl(t, "-n", s.namespace, "get", "quota", "none", "-o", "jsonpath={.status.hard.pods}") == "0"
	})
	r := s.start("echo begun", nil)
	r.awaitWait("Kubernetes does not take the pod yet: ")
	kubetest.Kubectl(t, "-n", s.namespace, "delete", "quota", "none")
	if exit, err := r.wait(); err != nil || exit.Code != 0 {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestEvictionIsNoFaultOfTheCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.start("echo begun; sleep 1000", nil)
	r.awaitBegun()
	running := <-r.began
	kubetest.Evict(t, s.namespace, running.Name)
	if exit, err := r.wait(); err == nil || !strings.Contains(err.Error(), "Kubernetes ended the pod on node n") || !strings.Contains(err.Error(), "(EvictionByEvictionAPI)") {
		t.Errorf("%+v, %v", exit, err)
	}
}

// shares shows a directory at /work.
func shares(dir string) func(c *container.Container) {
	return func(c *container.Container) { c.Binds = []container.Bind{{Source: dir, Target: "/work"}} }
}

// touch makes an empty file.
func touch(t *testing.T, dir, name string) {
	t.Helper()
	testenv.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
}
