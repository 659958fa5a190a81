package container_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

func TestEndOfContextTerminatesEveryProcess(t *testing.T) {
	t.Parallel()
	work := userDir(t)
	r := start(t, container.Container{
		SIF:   shellImage(t),
		Grace: 20 * time.Second,
		Binds: []container.Bind{{Source: work, Target: "/work"}},
		ShellCommand: `
setsid sh -c 'trap "echo daemon saved >/work/daemon; exit" TERM; touch /work/ready; while :; do sleep 0.01; done' &
trap 'echo command saved; exit 3' TERM
while ! test -e /work/ready; do sleep 0.01; done
echo begun
while :; do sleep 0.01; done`,
	})
	r.awaitBegun()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	answer := r.wait()
	if answer.Error != "" || answer.Exit.Code != 3 || !strings.Contains(r.output(), "command saved\n") {
		t.Errorf("%+v with output %q, want exit status 3 and what it saved", answer, r.output())
	}
	if saved, err := os.ReadFile(filepath.Join(work, "daemon")); err != nil || string(saved) != "daemon saved\n" {
		t.Errorf("the other session's process left %q, %v", saved, err)
	}
}

func TestProcessThatIgnoresTermIsKilledAfterItsGrace(t *testing.T) {
	t.Parallel()
	r := start(t, container.Container{
		SIF:          shellImage(t),
		Grace:        50 * time.Millisecond,
		ShellCommand: `trap '' TERM; echo begun; while :; do sleep 0.01; done`,
	})
	r.awaitBegun()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 137 || answer.Exit.Signal != 9 {
		t.Errorf("%+v, want killed by 9", answer)
	}
}

func TestBackgroundProcessesEndWithTheCommand(t *testing.T) {
	t.Parallel()
	r := start(t, container.Container{SIF: shellImage(t), ShellCommand: "setsid sleep 1000 & sleep 1000 & exit 4"})
	if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 4 {
		t.Errorf("%+v, want exit status 4", answer)
	}
}

func TestKillingAnyPartLeavesNoProcessAndNoMount(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	for _, victim := range []string{"caller", "init", "squashfuse_ll"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			scratch := userDir(t)
			r := start(t, container.Container{SIF: image, Scratch: scratch, ShellCommand: "setsid sleep 1000 & echo begun; sleep 1000"})
			r.awaitBegun()
			parts := r.processes()
			i := slices.IndexFunc(parts, func(p process) bool { return p.name == victim })
			pid := r.cmd.Process.Pid
			switch {
			case victim == "init":
				pid = parts[0].pid
			case i >= 0:
				pid = parts[i].pid
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if victim == "caller" {
				_ = r.cmd.Wait()
			} else if answer := r.wait(); answer.Error == "" {
				t.Errorf("%+v, want an error", answer)
			}
			deadline := time.Now().Add(10 * time.Second)
			gone := func(p process) bool { return !slices.Contains(processTable(t), p) }
			for len(parts) > 0 || mounted(t, scratch) {
				if time.Now().After(deadline) {
					t.Fatalf("left: %v", parts)
				}
				parts = slices.DeleteFunc(parts, gone)
			}
		})
	}
}

// A batch system may send TERM to every process of a job at once.
func TestTermToEveryProcessOfTheJobLosesNoExitStatus(t *testing.T) {
	t.Parallel()
	work := userDir(t)
	r := start(t, container.Container{
		SIF:          shellImage(t),
		Binds:        []container.Bind{{Source: work, Target: "/work"}},
		ShellCommand: `trap 'while ! test -e /work/go; do sleep 0.01; done; cat /usr/shipped; exit 5' TERM; echo begun; while :; do sleep 0.01; done`,
	})
	r.awaitBegun()
	for _, p := range r.processes() {
		if err := syscall.Kill(p.pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 5 || !strings.HasSuffix(r.output(), "by the image\n") {
		t.Errorf("%+v with output %q, want exit status 5 and the image still readable", answer, r.output())
	}
}
