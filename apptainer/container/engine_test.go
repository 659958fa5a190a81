package container_test

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

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
	c := container.Container{PinnedReference: pinned, ShellCommand: "echo ran"}
	if answer := w.start(t, c).wait(); !strings.Contains(answer.Error, fmt.Sprintf("the engine does not have the image: `docker pull %s` brings it", pinned)) {
		t.Errorf("%+v", answer)
	}
	w.call(t, "pull", "--quiet", pinned)
	t.Cleanup(func() { w.call(t, "rmi", "--force", pinned) })
	if got := w.shell(t, c); got != "ran\n" {
		t.Errorf("output %q", got)
	}
}

// A command that only ends as if it had been killed has not run out of memory.
func TestOnlyAContainerThatRanOutOfMemoryIsSaidToHave(t *testing.T) {
	t.Parallel()
	w := dockerRuntime(t)
	for name, tt := range map[string]struct {
		command string
		code    int
		ran     bool
	}{
		"the command's program": {"tail /dev/zero; echo $?", 0, true},
		"the command":           {"exec tail /dev/zero", 137, true},
		"perhaps all":           {"cat /dev/zero >/dev/shm/full; exit 137", 137, true}, // the kernel's choice is unknown then
		"killed":                {"kill -KILL $$", 137, false},
		"exit status":           {"exit 137", 137, false},
		"within its request":    {"truncate -s 70M /x; cat /x | tail -c 70M >/dev/null", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := w.shellImage(t)
			c.ShellCommand, c.MemoryBytes = tt.command, 100<<20
			answer := w.start(t, c).wait()
			ran := answer.Exit.Usage.OOMKills > 0
			if answer.Error != "" || answer.Exit.Code != tt.code || ran != tt.ran {
				t.Errorf("%+v, want code %d, out of memory %v", answer, tt.code, tt.ran)
			}
			if tt.ran && answer.Exit.Usage.MemoryPeak != 0 && answer.Exit.Usage.MemoryPeak < 100<<20 {
				t.Errorf("its memory was %d at most", answer.Exit.Usage.MemoryPeak)
			}
		})
	}
}

func TestEnginesContainerSaysWhatItUsed(t *testing.T) {
	t.Parallel()
	w := dockerRuntime(t)
	for _, memory := range []int64{0, 512 << 20} {
		c := w.shellImage(t)
		c.ShellCommand, c.MemoryBytes = "i=0; while test $i -lt 300000; do i=$((i+1)); done; truncate -s 40M /x; cat /x | tail -c 40M >/dev/null", memory
		used := w.start(t, c).wait().Exit.Usage
		if used.User < 50*time.Millisecond || used.User > time.Minute || used.MemoryPeak < 40<<20 || used.MemoryPeak > 120<<20 || used.OOMKills != 0 {
			t.Errorf("with the limit %d it used %+v", memory, used)
		}
	}
}

func TestEnginesContainerGetsTheProcessorsOfItsCaller(t *testing.T) {
	t.Parallel()
	w := dockerRuntime(t)
	if _, err := exec.LookPath("taskset"); err != nil || runtime.NumCPU() < 2 {
		t.Skip("needs taskset and two processors")
	}
	c := w.shellImage(t)
	c.ShellCommand = "grep Cpus_allowed_list: /proc/self/status"
	r := startRequest(t, runRequest{Runtime: w, Container: c}, "taskset", "--cpu-list", "1", self, runAsUser)
	if answer := r.wait(); answer.Error != "" || strings.Join(strings.Fields(r.output()), " ") != "Cpus_allowed_list: 1" {
		t.Errorf("%+v with output %q", answer, r.output())
	}
}

// Docker mounts a file there.
func TestEnginesRefusalOfAnImageIsTheImagesFault(t *testing.T) {
	t.Parallel()
	w := dockerRuntime(t)
	c := w.image(t, v1.Config{}, append(smallRoot(t), imagetest.Directory("etc/hosts"), imagetest.Regular("etc/hosts/x", ""))...)
	c.ShellCommand = "true"
	r := w.start(t, c)
	if answer := r.wait(); answer.Fault != "request" || !strings.Contains(answer.Error, "something of another kind") || r.output() != "" {
		t.Errorf("%+v with the output %q", answer, r.output())
	}
}
