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
	w.call(t, "pull", "--quiet", pinned)
	t.Cleanup(func() { w.call(t, "rmi", "--force", pinned) })
	if got := w.shell(t, c); got != "ran\n" {
		t.Errorf("output %q", got)
	}
}
