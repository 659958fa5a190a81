package container_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

func TestEngineRunsWhatWasPulledByItsDigestAndPullsNothingItself(t *testing.T) {
	t.Parallel()
	w := dockerRuntime(t)
	image := imagetest.Image(t, v1.Config{Env: []string{"PATH=/bin"}}, imagetest.GzipLayer(t, imagetest.TarStream(t, smallRoot(t)...)))
	name := imagetest.Start(t).Push(t, "test/pinned", image)
	digest, err := image.Digest()
	must(t, err)
	pinned := name + "@" + digest.String()
	c := container.Container{Image: pinned, ShellCommand: "echo ran"}
	if answer := w.start(t, c).wait(); !strings.Contains(answer.Error, fmt.Sprintf("the engine does not have the image: `docker pull %s` brings it", pinned)) {
		t.Errorf("%+v", answer)
	}
	must(t, w.Engine.Pull(t.Context(), pinned))
	t.Cleanup(func() { w.call(t, "rmi", "--force", pinned) })
	if got := w.shell(t, c); got != "ran\n" {
		t.Errorf("output %q", got)
	}
}

func TestEngineKeepsLimits(t *testing.T) {
	t.Parallel()
	w := dockerRuntime(t)
	c := w.shellImage(t)
	c.MemoryBytes, c.CPUs = 64<<20, 0.5
	c.ShellCommand = `
cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null
cat /sys/fs/cgroup/cpu.max 2>/dev/null
cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null
true`
	if got := w.shell(t, c); got != "67108864\n50000\n" && got != "67108864\n50000 100000\n" {
		t.Errorf("limits %q", got)
	}
}
