package container_test

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// way is one of the ways to run a container, for the process that does. The
// zero value is the built-in one.
type way struct {
	Apptainer *container.Apptainer
}

// containers is what package worker calls a way.
func (w way) containers() interface {
	Run(ctx context.Context, c container.Container) (container.Exit, error)
} {
	if w.Apptainer != nil {
		return *w.Apptainer
	}
	return container.Builtin{}
}

// onEachWay runs a test of the fidelity suite on each way that this machine
// has, and says which it has not.
func onEachWay(t *testing.T, test func(t *testing.T, w way)) {
	t.Helper()
	t.Run("builtin", func(t *testing.T) {
		t.Parallel()
		testenv.Containers(t)
		test(t, way{})
	})
	for name, plain := range map[string]bool{"apptainer": false, "apptainer plain": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, way{Apptainer: &container.Apptainer{Program: apptainerProgram(t), Plain: plain, Enter: enterCopy(t)}})
		})
	}
}

// apptainerProgram is the Apptainer of this machine.
func apptainerProgram(tb testing.TB) string {
	tb.Helper()
	testenv.Containers(tb)
	program, err := exec.LookPath(cmp.Or(os.Getenv("CLTEST_APPTAINER"), "apptainer"))
	if err != nil {
		tb.Skipf("needs Apptainer on PATH or at $CLTEST_APPTAINER: %v", err)
	}
	return program
}

// enterCopy is this program where every user may run it.
func enterCopy(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(filepath.Dir(shellImage(tb)), "test")
}

// image is an image of these files for this way to run.
func (w way) image(tb testing.TB, config v1.Config, files ...imagetest.File) container.Container {
	tb.Helper()
	return container.Container{SIF: sif(tb, config, files...)}
}

// shellImage is an image with a shell and the usual programs.
func (w way) shellImage(tb testing.TB) container.Container {
	tb.Helper()
	return container.Container{SIF: shellImage(tb)}
}

func (w way) start(tb testing.TB, c container.Container) *run {
	tb.Helper()
	return startUnder(tb, w, c, "/proc/self/exe", runAsUser)
}

// shell runs a command line and wants exit status 0.
func (w way) shell(tb testing.TB, c container.Container) string {
	tb.Helper()
	r := w.start(tb, c)
	answer := r.wait()
	if answer.Error != "" || answer.Exit.Code != 0 {
		tb.Fatalf("ended with %+v and the output %q", answer, r.output())
	}
	return r.output()
}
