package container_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// The wall is the pipe: with the file itself as its output, the command empties the file whenever it
// opens it by one of these names.
func TestFidelityNothingErasesTheOutput(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		c := w.shellImage(t)
		c.ShellCommand = `
echo first
echo second >/dev/stdout
echo third >/proc/self/fd/1
echo fourth >/dev/fd/1
echo fifth | cat >/proc/$$/fd/1
truncate -s 0 /dev/stdout 2>/dev/null || true
for fd in 1 2; do test -p /proc/self/fd/$fd && echo "a pipe"; test -t $fd || echo "no terminal"; done
echo last`
		if got := w.shell(t, c); !isSubsequence([]string{"first", "second", "third", "fourth", "fifth", "a pipe", "no terminal", "a pipe", "no terminal", "last"}, strings.Split(got, "\n")) {
			t.Errorf("output %q", got)
		}
		c.ShellCommand = `
echo first >&2
echo second >/dev/stderr
echo third >/proc/self/fd/2
echo fourth >/dev/fd/2`
		if got := w.shell(t, c); !strings.HasSuffix(got, "first\nsecond\nthird\nfourth\n") {
			t.Errorf("standard error %q", got)
		}
	})
}

func TestFidelityMaskedTextsDoNotReachTheOutput(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		c := w.shellImage(t)
		c.Env, c.Masked = []string{"KEY=correct horse"}, []string{"correct horse", "battery\nstaple"}
		c.ShellCommand = `echo "a $KEY b"; printf 'correct '; printf "horse\n"; printf 'battery\n'; printf 'staple\n'; printf 'correct hors'; echo "$KEY!" >&2; echo "$KEY" >/made; cat /made >&2`
		r := w.start(t, c)
		answer, got := r.wait(), r.output()
		lines := strings.Split(got, "\n")
		if answer.Error != "" || answer.Exit.Code != 0 || strings.Contains(got, "horse\n") || strings.Count(got, "***") != 5 ||
			!slices.Contains(lines, "a *** b") || !strings.Contains(got, "correct hors") || !strings.Contains(got, "***!") {
			t.Errorf("%+v, output %q", answer, got)
		}
	})
}

// TestFidelityEnvironmentIsInNoFileOnceTheCommandHasBegun looks for a variable's value in the private directory, and then
// lets the command write it there.
func TestFidelityEnvironmentIsInNoFileOnceTheCommandHasBegun(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		work := userDir(t)
		c := w.shellImage(t)
		c.Env, c.Binds = []string{"KEY=correct-horse"}, []container.Bind{{Source: work, Target: "/work"}}
		c.ShellCommand = `echo begun; while ! test -e /work/go; do sleep 0.01; done; echo "$KEY" >/work/made`
		r := w.start(t, c)
		r.awaitBegun()
		var found []string
		testenv.Await(t, "no file has the variable", func() bool {
			found = filesWith(t, r.req.Container.PrivateDir, "correct-horse")
			return len(found) == 0
		}, &found)
		must(t, os.WriteFile(filepath.Join(work, "go"), nil, 0o644))
		if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 0 {
			t.Errorf("%+v, output %q", answer, r.output())
		}
		if found = filesWith(t, work, "correct-horse"); len(found) != 1 {
			t.Errorf("the search finds %q, want the command's file", found)
		}
	})
}

// filesWith returns the files below a directory that have a text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !e.Type().IsRegular() {
			return nil
		}
		if errors.Is(err, fs.ErrPermission) && strings.HasSuffix(path, "/work/work") { // the kernel's own, of an overlay: nobody but root opens it
			return nil
		}
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), text) {
			found = append(found, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}))
	return found
}

// isSubsequence reports whether a list has all of these, in their order.
func isSubsequence(these, list []string) bool {
	for _, text := range list {
		if len(these) > 0 && text == these[0] {
			these = these[1:]
		}
	}
	return len(these) == 0
}

func TestFidelityAllOutputBeforeAKillIsKept(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		c := w.shellImage(t)
		c.ShellCommand = "i=0; while test $i -lt 3000; do echo a line of the output that fills a pipe; i=$((i+1)); done; echo last; kill -KILL $$"
		r := w.start(t, c)
		answer, got := r.wait(), r.output()
		if answer.Error != "" || answer.Exit.Code != 137 || strings.Count(got, "\n") != 3001 || !strings.HasSuffix(got, "pipe\nlast\n") {
			t.Errorf("%+v with %d lines, the last ones %q", answer, strings.Count(got, "\n"), got[max(0, len(got)-200):])
		}
	})
}

// A limit of the size of files stands for a disk that takes no more.
func TestOutputThatItsDiskDoesNotTakeIsReported(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("prlimit"); err != nil {
		t.Skip("needs prlimit")
	}
	c := container.Container{SIF: shellImage(t)}
	c.ShellCommand = "i=0; while test $i -lt 3000; do echo a line of the output; i=$((i+1)); done; echo >/made"
	r := startRequest(t, runRequest{Container: c}, "prlimit", "--fsize=8192", self, runAsUser)
	if answer, got := r.wait(), r.output(); answer.Error != "" || answer.Exit.Code != 0 || answer.Exit.OutputError != syscall.EFBIG || len(got) != 8192 {
		t.Errorf("%+v with %d bytes of output", answer, len(got))
	}
}

// Docker's client warns of the image's platform, and of limits that the kernel lacks.
func TestEnginesWarningsAreNotInTheCommandsOutput(t *testing.T) {
	t.Parallel()
	w := dockerRuntime(t)
	image := imagetest.Image(t, shellConfig(), imagetest.GzipLayer(t, imagetest.TarStream(t, smallRoot(t)...)))
	config, err := image.ConfigFile()
	must(t, err)
	config = config.DeepCopy()
	config.Architecture = "riscv64" // its programs are this machine's
	image, err = mutate.ConfigFile(image, config)
	must(t, err)
	tag, err := name.NewTag("localhost/cl-slurm-test:riscv64")
	must(t, err)
	file := filepath.Join(userDir(t), "image.tar")
	must(t, tarball.WriteToFile(file, tag, image))
	must(t, os.Chmod(file, 0o644))
	w.call(t, "load", "--input", file)
	t.Cleanup(func() { w.call(t, "rmi", "--force", tag.String()) })
	warned, err := exec.Command(w.Engine.Program, "--host", w.Engine.Env[2][len("DOCKER_HOST="):], "run", "--rm", "--network", "none", tag.String(), "true").CombinedOutput()
	if err != nil || !strings.Contains(string(warned), "platform") {
		t.Skipf("needs a Docker that warns of an image for another platform: %q, %v", warned, err)
	}
	if got := w.shell(t, container.Container{PinnedReference: tag.String(), ShellCommand: "echo out; echo err >&2"}); got != "out\nerr\n" && got != "err\nout\n" {
		t.Errorf("output %q", got)
	}
	answer := w.start(t, container.Container{PinnedReference: tag.String(), ShellCommand: "true", Dir: "/etc/passwd"})
	if end := answer.wait(); end.Error == "" || answer.output() != "" {
		t.Errorf("a container that did not begin: %+v with the output %q", end, answer.output())
	}
}
