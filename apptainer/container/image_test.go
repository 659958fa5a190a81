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

// twoImages are SIFs of which each says which it is, in a directory of the
// ordinary user's.
func twoImages(t *testing.T) (first, second string) {
	t.Helper()
	dir := userDir(t)
	for _, which := range []string{"first", "second"} {
		image := sif(t, v1.Config{Env: []string{"PATH=/bin"}}, append(smallRoot(t), imagetest.Regular("which", which+"\n"))...)
		at := filepath.Join(dir, which+".sif")
		must(t, os.Rename(image, at))
	}
	return filepath.Join(dir, "first.sif"), filepath.Join(dir, "second.sif")
}

// replacing is a program that puts the second image in the first one's place
// and then is the one at path.
func replacing(t *testing.T, path, first, second string) string {
	t.Helper()
	script := filepath.Join(filepath.Dir(first), "replacing")
	testenv.WriteProgram(t, script, fmt.Appendf(nil, "#!/bin/sh\nmv %s %s || exit 99\nexec %s \"$@\"\n", second, first, path))
	return script
}

// Who may write to an image's directory may put another in its place at any
// time.
func TestFidelityImageIsTheOneThatWasLookedAt(t *testing.T) {
	t.Parallel()
	onEachWay(t, func(t *testing.T, w way) {
		if w.Engine != nil {
			t.Skip("an engine runs no SIF")
		}
		first, second := twoImages(t)
		c := container.Container{SIF: first, ShellCommand: "cat /which"}

		r := startOpened(t, w, c, second)
		if answer := r.wait(); !strings.Contains(answer.Error, "first.sif was replaced by another while the container began") || r.output() != "" {
			t.Errorf("%+v, output %q", answer, r.output())
		}
		switch {
		case w.Apptainer == nil:
			installed, err := exec.LookPath("squashfuse_ll")
			must(t, err)
			program := filepath.Join(filepath.Dir(first), "squashfuse_ll")
			code, err := os.ReadFile(installed)
			must(t, err)
			testenv.WriteProgram(t, program, code)
			r = startOnHost(t, "mount --bind "+replacing(t, program, first, second)+" "+installed, c)
		case w.Apptainer.Plain:
			return // Apptainer follows the path itself
		default:
			w.Apptainer.Program = replacing(t, w.Apptainer.Program, first, second)
			r = w.start(t, c)
		}
		if answer := r.wait(); answer.Error != "" || r.output() != "first\n" {
			t.Errorf("replaced meanwhile: %+v, output %q", answer, r.output())
		}
		if _, err := os.Stat(second); err == nil {
			t.Error("nothing was replaced")
		}
	})
}
