package container_test

import (
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

// People may also run a SIF of this project by hand.
func TestSIFIsRunByApptainersOwnCommands(t *testing.T) {
	t.Parallel()
	w := apptainerRuntime(t)
	env := []string{
		"CONTROL=\x01\t", "EMPTY=", "EQUALS=a=b=", "LINES=a\nb\n", `MARKS=' " \ $HOME $(id) ` + "`id`" + ` %s ; & | < > * ~ # !`,
		"PATH=/bin:/opt", "SINGLE='", "SPACES=  x  ", "UTF8=naïve – 猫",
	}
	image := convert(t, apptainer.Converter{Compression: w.ownCompression(t)}, v1.Config{
		Env: env, Entrypoint: []string{"/bin/say", "it's $HOME"}, Cmd: []string{"a  b"}, Labels: map[string]string{"org.example.one": `"two"`},
	}, append(smallRoot(t), imagetest.Executable("bin/say", "#!/bin/sh\nfor a; do echo \"<$a>\"; done\n"))...)
	home := userDir(t)
	call := func(args ...string) string {
		cmd := exec.Command(w.Apptainer.Program, append([]string{"--silent"}, args...)...)
		cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + home}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ordinaryUser(t)}
		cmd.Stderr = t.Output()
		out, err := cmd.Output()
		must(t, err)
		return string(out)
	}
	got := strings.Split(call("exec", "--containall", "--no-home", image, "env", "-0"), "\x00")
	for _, assignment := range env {
		// Apptainer ends the PATH with the usual directories.
		if !slices.Contains(got, assignment) && !slices.Contains(got, assignment+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin") {
			t.Errorf("no %q in %q", assignment, got)
		}
	}
	if got := call("run", "--containall", "--no-home", image); got != "<it's $HOME>\n<a  b>\n" {
		t.Errorf("run: %q", got)
	}
	if got := call("run", "--containall", "--no-home", "--no-eval", image, "c  d", "$HOME"); got != "<it's $HOME>\n<c  d>\n<$HOME>\n" {
		t.Errorf("run with arguments: %q", got)
	}
	if got := call("inspect", "--labels", image); !strings.Contains(got, `org.example.one: "two"`) {
		t.Errorf("labels: %q", got)
	}
}
