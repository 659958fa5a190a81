package container_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// server returns the process that serves an image: the one that has its file open.
func (r *run) server(image string) int {
	r.t.Helper()
	var want syscall.Stat_t
	must(r.t, syscall.Stat(image, &want))
	for _, p := range r.servers() {
		open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.pid))
		must(r.t, err)
		for _, name := range open {
			var got syscall.Stat_t
			if syscall.Stat(name, &got) == nil && got.Dev == want.Dev && got.Ino == want.Ino {
				return p.pid
			}
		}
	}
	r.t.Fatalf("nothing serves %s", image)
	return 0
}

// servers returns the processes that serve images.
func (r *run) servers() []process {
	return slices.DeleteFunc(r.processes(), func(p process) bool { return p.name != "squashfuse_ll" })
}

// A command that finds its files gone fails immediately.
func TestLostImageIsNotReportedAsTheCommandsFailure(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	for name, find := range map[string]func(testing.TB) testRuntime{
		"builtin":   func(testing.TB) testRuntime { return testRuntime{} },
		"apptainer": apptainerRuntime,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := find(t).start(t, container.Container{SIF: image, ShellCommand: "echo begun; while cat /usr/shipped; do :; done; exit 9"})
			r.awaitBegun()
			must(t, syscall.Kill(r.server(image), syscall.SIGKILL))
			if answer := r.wait(); !strings.Contains(answer.Error, "squashfuse, which serves the image's files") {
				t.Errorf("%+v", answer)
			}
		})
	}
}

// The disk here is a squashfs, whose server is killed.
func TestCommandThatFailsAfterItsImagesDiskIsNotAtFault(t *testing.T) {
	t.Parallel()
	image, disk := shellImage(t), userDir(t)
	mount := fmt.Sprintf("mksquashfs %s %s/image.sq -quiet -no-progress >/dev/null; mkdir %[2]s/mnt; squashfuse_ll -f %[2]s/image.sq %[2]s/mnt & echo $! >%[2]s/pid; while ! test -e %[2]s/mnt/image.sif; do sleep 0.01; done", image, disk)
	r := startOnHost(t, mount, container.Container{
		SIF: disk + "/mnt/image.sif", Binds: []container.Bind{{Source: disk, Target: "/work"}},
		ShellCommand: "echo begun; while ! test -e /work/go; do sleep 0.01; done; exit 3",
	})
	r.awaitBegun()
	pid, err := os.ReadFile(disk + "/pid")
	must(t, err)
	server, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	must(t, err)
	must(t, syscall.Kill(server, syscall.SIGKILL))
	must(t, os.WriteFile(disk+"/go", nil, 0o644))
	if answer := r.wait(); !strings.HasSuffix(answer.Error, "the image could be read no more while the command ran: transport endpoint is not connected") || answer.Fault != "" {
		t.Errorf("%+v", answer)
	}
}
