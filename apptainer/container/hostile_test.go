package container_test

import (
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

// An image's configuration is JSON, which may contain a zero byte; zero bytes separate bubblewrap's
// options.
func TestFidelityEnvironmentOfAnImageBindsNothing(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		if w.hasStore() {
			t.Skip("an engine reads the image's configuration itself")
		}
		victim := userDir(t)
		c := w.image(t, v1.Config{Env: []string{"PATH=/bin", "A=x\x00--bind\x00" + victim + "\x00/stolen", "B\x00--bind\x00" + victim + "\x00/stolen=x", "C=kept"}}, smallRoot(t)...)
		c.ShellCommand = "ls -d /stolen 2>&-; echo $C"
		if got := w.shell(t, c); got != "kept\n" {
			t.Errorf("output %q", got)
		}
	})
}

// Apptainer runs an image's scripts before the command, and with more
// capabilities.
func TestFidelityScriptsOfAnImageAreNotRun(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		dependency := userDir(t)
		must(t, os.WriteFile(filepath.Join(dependency, "data"), []byte("precious\n"), 0o666))
		must(t, os.Chmod(filepath.Join(dependency, "data"), 0o666))
		script := "#!/bin/sh\necho script\nmount -o remount,rw,bind /dependency && echo remounted; echo spoiled >/dependency/data\n"
		files := append(smallRoot(t), imagetest.Directory(".singularity.d"), imagetest.Directory(".singularity.d/env"))
		for _, name := range []string{".singularity.d/env/00-first.sh", ".singularity.d/env/95-apps.sh", "sbin/ldconfig", "environment"} {
			files = append(files, imagetest.Executable(name, script))
		}
		c := w.image(t, v1.Config{Env: []string{"PATH=/bin"}}, files...)
		c.Binds = []container.Bind{{Source: dependency, Target: "/dependency", ReadOnly: true}}
		c.ShellCommand = "cat /dependency/data"
		if got := w.shell(t, c); got != "precious\n" {
			t.Errorf("output %q", strings.TrimSpace(got))
		}
	})
}

// The command can overwrite the report of its container.
func TestFidelityCommandThatWritesToTheReportDoesNoMoreThanFail(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		if w.Apptainer == nil && !w.hasStore() {
			t.Skip("the built-in runtime shows no report inside")
		}
		c := w.shellImage(t)
		c.ShellCommand = "truncate -s 1T /.container/report; echo >>/.container/report; exit 7"
		r := w.start(t, c)
		if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 7 {
			t.Errorf("%+v, want exit status 7; output %q", answer, r.output())
		}
	})
}

// Some versions of unsquashfs followed an image's links when they wrote.
func TestUnpackingWritesNowhereElse(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	dir := userDir(t)
	victim, program := filepath.Join(dir, "victim"), filepath.Join(dir, "program")
	installed, err := exec.LookPath("unsquashfs")
	must(t, err)
	code, err := os.ReadFile(installed)
	must(t, err)
	testenv.WriteProgram(t, program, code)
	must(t, os.Mkdir(victim, 0o777))
	must(t, os.Chmod(victim, 0o777))
	misled := filepath.Join(dir, "misled")
	testenv.WriteProgram(t, misled, []byte("#!/bin/sh\necho led astray >"+victim+"/file\nexec "+program+" \"$@\"\n"))
	r := startOnHost(t, fuseNotOurs+"; mount --bind "+misled+" "+installed, container.Container{SIF: shellImage(t), ShellCommand: "cat /usr/shipped"})
	if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 0 || r.output() != "by the image\n" {
		t.Errorf("%+v and the output %q", answer, r.output())
	}
	left, err := os.ReadDir(victim)
	if must(t, err); len(left) > 0 {
		t.Errorf("written elsewhere: %v", left)
	}
}

// Files made in a bind are made on the host, so an image's link must not lead a mount point there.
func TestImagesLinksLeadNoBindIntoAnother(t *testing.T) {
	t.Parallel()
	for _, link := range []string{"/work", "/work/deeper", "/dev/shm", "/proc/self/cwd"} {
		work, dependency := userDir(t), userDir(t)
		answer := start(t, container.Container{
			SIF: sif(t, v1.Config{}, append(smallRoot(t), imagetest.Symlink("dependencies", link))...),
			Binds: []container.Bind{
				{Source: work, Target: "/work"},
				{Source: dependency, Target: "/dependencies/a/b", ReadOnly: true},
			},
			ShellCommand: "true",
		}).wait()
		if !strings.Contains(answer.Error, "the image's links lead /dependencies/a/b into ") {
			t.Errorf("%s: %+v", link, answer)
		}
		if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
			t.Errorf("%s: left in the bind: %v, %v", link, left, err)
		}
	}
}
