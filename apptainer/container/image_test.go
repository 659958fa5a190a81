package container_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// twoImages are SIFs with a file that names the SIF, in a directory of the ordinary user's.
func (w testRuntime) twoImages(t *testing.T) (first, second string) {
	t.Helper()
	dir := userDir(t)
	for _, which := range []string{"first", "second"} {
		image := w.image(t, v1.Config{Env: []string{"PATH=/bin"}}, append(smallRoot(t), imagetest.Regular("which", which+"\n"))...).SIF
		at := filepath.Join(dir, which+".sif")
		must(t, os.Rename(image, at))
	}
	return filepath.Join(dir, "first.sif"), filepath.Join(dir, "second.sif")
}

// startBehind makes a request with a runtime whose program for mounting the image, or for setting
// the container up, first does something else.
func startBehind(t *testing.T, before string, req runRequest) *run {
	t.Helper()
	w := req.Runtime
	dir := userDir(t)
	script, program := filepath.Join(dir, "script"), filepath.Join(dir, "squashfuse_ll")
	if w.plain() {
		program = w.Apptainer.Program
	}
	testenv.WriteProgram(t, script, fmt.Appendf(nil, "#!/bin/sh\n{ %s; } || exit 99\nexec %s \"$@\"\n", before, program))
	if w.plain() {
		a := *w.Apptainer
		a.Program = script
		req.Runtime = testRuntime{Apptainer: &a}
		return startRequest(t, req)
	}
	installed, err := exec.LookPath("squashfuse_ll")
	must(t, err)
	code, err := os.ReadFile(installed)
	must(t, err)
	testenv.WriteProgram(t, program, code)
	return startRequestOnHost(t, "mount --bind "+script+" "+installed, req)
}

// A user with write access to an image's directory may replace the image at any time.
func TestFidelityImageIsTheOneThatWasOpened(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		if w.hasStore() {
			t.Skip("an engine does not run SIFs")
		}
		first, second := w.twoImages(t)
		c := container.Container{SIF: first, ShellCommand: "cat /which"}

		r := startRequest(t, runRequest{Runtime: w, Container: c, Opened: second})
		if answer := r.wait(); !strings.Contains(answer.Error, "first.sif was replaced by another while the container began") || r.output() != "" {
			t.Errorf("%+v, output %q", answer, r.output())
		}
		if w.Apptainer != nil && w.Apptainer.Plain {
			return // Apptainer follows the path itself
		}
		r = startBehind(t, "mv "+second+" "+first, runRequest{Runtime: w, Container: c, Opened: first})
		if answer := r.wait(); answer.Error != "" || r.output() != "first\n" {
			t.Errorf("replaced meanwhile: %+v, output %q", answer, r.output())
		}
		if _, err := os.Stat(second); err == nil {
			t.Error("nothing was replaced")
		}
	})
}

// The time that a node needs to set a container up does not count as the command's.
func TestFidelityCommandBeginsWhenItsContainerIsSetUp(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		if w.hasStore() {
			t.Skip("this test cannot delay an engine")
		}
		dir, c := userDir(t), w.shellImage(t)
		c.ShellCommand = "echo begun; exit 6"
		r := startBehind(t, fmt.Sprintf("touch %[1]s/reached; while ! test -e %[1]s/go; do sleep 0.01; done", dir), runRequest{Runtime: w, Container: c})
		testenv.AwaitFile(t, filepath.Join(dir, "reached"))
		if _, err := os.Stat(r.req.StdoutPath + startedSuffix); err == nil {
			t.Error("OnStart was called before the image was there")
		}
		must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
		if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 6 || len(answer.Started) != 1 || answer.Started[0] == 0 {
			t.Errorf("%+v, want exit status 6 and one start", answer)
		}
	})
}
