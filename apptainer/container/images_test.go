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

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// group is several containers of one process.
type group struct {
	*run

	work  string // bound to /work in each
	token string
}

// startGroup runs a command line in each of the images, at the same time.
// $1 is the container's number.
func startGroup(t *testing.T, command string, images ...string) *group {
	t.Helper()
	g := &group{work: userDir(t), token: newToken()}
	var requests []runRequest
	for i, image := range images {
		requests = append(requests, runRequest{Container: container.Container{
			SIF:   image,
			Binds: []container.Bind{{Source: g.work, Target: "/work"}},
			Args:  []string{"sh", "-c", command, g.token, fmt.Sprint(i)},
		}})
	}
	first := requests[0]
	first.Runtime, first.Others = testRuntime{Shared: true}, requests[1:]
	g.run = startRequest(t, first)
	return g
}

// A kernel before Linux 5.2 has no open_tree.
func TestKernelThatHandsOutNoMountsLeavesEachContainerItsOwn(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	g := &group{work: userDir(t), token: newToken()}
	c := container.Container{
		SIF: image, Binds: []container.Bind{{Source: g.work, Target: "/work"}},
		Args: []string{"sh", "-c", "echo begun; while ! test -e /work/go; do sleep 0.01; done; cat /usr/shipped", g.token},
	}
	g.run = startRequest(t, runRequest{Runtime: testRuntime{Shared: true}, Container: c, Forbidden: forbidden{unix.SYS_OPEN_TREE, unix.ENOSYS}, Others: []runRequest{{Container: c}}})
	g.awaitAll()
	if n := len(g.servers()); n != 2 {
		t.Errorf("%d processes serve two containers", n)
	}
	g.tell("go")
	answer := g.wait()
	for i, a := range append([]runAnswer{answer}, answer.Others...) {
		if a.Error != "" || a.Exit.Note != "" || g.outputOf(i) != "begun\nby the image\n" {
			t.Errorf("container %d: %+v and output %q", i, a, g.outputOf(i))
		}
	}
}

// outputOf returns the output of a container so far.
func (g *group) outputOf(i int) string {
	path := g.req.StdoutPath
	if i > 0 {
		path = g.req.Others[i-1].StdoutPath
	}
	out, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		g.t.Fatal(err)
	}
	return string(out)
}

// await waits until something holds.
func (g *group) await(what string, holds func() bool) {
	g.t.Helper()
	testenv.Await(g.t, what, holds, func() string { return fmt.Sprintf("outputs %q, %q", g.outputOf(0), g.outputOf(1)) })
}

// awaitAll waits until every container has begun.
func (g *group) awaitAll() {
	g.t.Helper()
	for i := range len(g.req.Others) + 1 {
		g.await("begun", func() bool { return strings.Contains(g.outputOf(i), "begun") })
	}
}

// tell makes a file that containers wait for.
func (g *group) tell(name string) {
	g.t.Helper()
	must(g.t, os.WriteFile(filepath.Join(g.work, name), nil, 0o644))
}

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

func TestContainersOfOneProcessShareTheMountOfTheirImage(t *testing.T) {
	t.Parallel()
	shared, other := shellImage(t), sif(t, v1.Config{Env: []string{"PATH=/bin"}}, smallRoot(t)...)
	g := startGroup(t, `echo $1 >>/usr/shipped; echo begun; while ! test -e /work/go$1; do sleep 0.01; done; cat /usr/shipped; ls -l /bin/* | wc -l; exit $1`,
		shared, shared, shared, other)
	g.awaitAll()
	parts := g.processes()
	if n := len(g.servers()); n != 2 {
		t.Errorf("%d processes serve two images: %v", n, parts)
	}
	g.tell("go0")
	testenv.AwaitFile(t, g.req.StdoutPath+endedSuffix)
	if n := len(g.servers()); n != 2 {
		t.Errorf("%d processes serve two images after the end of the first container", n)
	}
	g.tell("go3")
	g.await("one image is served no more", func() bool { return len(g.servers()) == 1 })
	g.tell("go1")
	g.tell("go2")
	answer := g.wait()
	for i, a := range append([]runAnswer{answer}, answer.Others...) {
		if a.Error != "" || a.Exit.Code != i || a.Exit.Note != "" {
			t.Errorf("container %d: %+v", i, a)
		}
		if got := g.outputOf(i); !strings.HasPrefix(got, fmt.Sprintf("begun\nby the image\n%d\n", i)) {
			t.Errorf("container %d has written %q, and its root may be another's", i, got)
		}
	}
	g.awaitNothing(g.token, parts)
}

func TestSharedImageThatIsServedNoMoreEndsItsContainersAndNoOthers(t *testing.T) {
	t.Parallel()
	image, other := shellImage(t), sif(t, v1.Config{Env: []string{"PATH=/bin"}}, smallRoot(t)...)
	for _, victim := range []string{"squashfuse_ll", "its init"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			g := startGroup(t, `echo begun; while ! test -e /work/go$1; do sleep 0.01; done; cat /usr/shipped`, image, image, other)
			g.awaitAll()
			parts := g.processes()
			pid := g.server(image)
			if victim != "squashfuse_ll" {
				i := slices.IndexFunc(parts, func(p process) bool { return p.pid == pid })
				pid = parts[i].parent
			}
			must(t, syscall.Kill(pid, syscall.SIGKILL))
			testenv.AwaitFile(t, g.req.Others[0].StdoutPath+endedSuffix)
			g.tell("go2")
			answer := g.wait()
			if a := answer.Others[1]; a.Error != "" || a.Exit.Code != 0 || !strings.HasSuffix(g.outputOf(2), "by the image\n") {
				t.Errorf("the other image's container: %+v and output %q", a, g.outputOf(2))
			}
			for i, a := range []runAnswer{answer, answer.Others[0]} {
				if !strings.Contains(a.Error, "squashfuse, which serves the image's files to this and other containers, has ended") {
					t.Errorf("container %d: %+v", i, a)
				}
			}
			g.awaitNothing(g.token, parts)
		})
	}
}

func TestImageThatWasLostIsServedAnew(t *testing.T) {
	t.Parallel()
	image, late := shellImage(t), filepath.Join(userDir(t), "late")
	g := &group{work: userDir(t), token: newToken()}
	c := container.Container{SIF: image, Args: []string{"sh", "-c", "echo begun; while ! test -e /work/go; do sleep 0.01; done", g.token}, Binds: []container.Bind{{Source: g.work, Target: "/work"}}}
	after := c
	after.Args = []string{"sh", "-c", "echo begun; while ! test -e /work/go; do sleep 0.01; done; cat /usr/shipped"}
	g.run = startRequest(t, runRequest{
		Runtime: testRuntime{Shared: true}, Container: c,
		Others: []runRequest{{Container: after, After: late}},
	})
	g.awaitBegun()
	must(t, syscall.Kill(g.servers()[0].pid, syscall.SIGKILL))
	testenv.AwaitFile(t, g.req.StdoutPath+endedSuffix)
	must(t, os.WriteFile(late, nil, 0o644))
	g.await("begun anew", func() bool { return g.outputOf(1) != "" })
	parts, pid := g.processes(), g.server(image)
	server := slices.IndexFunc(parts, func(p process) bool { return p.pid == pid })
	if slices.ContainsFunc(parts, func(p process) bool { return p.name == "bwrap" && p.parent == parts[server].parent }) {
		t.Errorf("the container has a mount of its own: %v", parts)
	}
	g.tell("go")
	if a := g.wait().Others[0]; a.Error != "" || a.Exit.Note != "" || g.outputOf(1) != "begun\nby the image\n" {
		t.Errorf("%+v and output %q", a, g.outputOf(1))
	}
}

func TestKilledCallerLeavesNothingOfASharedImage(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	g := startGroup(t, `echo begun; sleep $0`, image, image)
	g.awaitAll()
	parts := g.processes()
	must(t, g.cmd.Process.Kill())
	_ = g.cmd.Wait()
	g.awaitNothing(g.token, parts)
}

// A command that finds its files gone fails immediately.
func TestLostImageIsNotReportedAsTheCommandsFailure(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	for name, find := range map[string]func(testing.TB) testRuntime{
		"shared":    func(testing.TB) testRuntime { return testRuntime{Shared: true} },
		"alone":     func(testing.TB) testRuntime { return testRuntime{} },
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
	mount := fmt.Sprintf("mksquashfs %s %s/image.sq -quiet -no-progress >/dev/null; mkdir %[2]s/mnt; squashfuse_ll -f %[2]s/image.sq %[2]s/mnt & echo $! >%[2]s/pid; while ! test -e %[2]s/mnt/shell.sif; do sleep 0.01; done", image, disk)
	r := startOnHost(t, mount, container.Container{
		SIF: disk + "/mnt/shell.sif", Binds: []container.Bind{{Source: disk, Target: "/work"}},
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

// An overlay cannot be the upper part of another overlay.
func TestContainerWithoutOverlayNeedsNoSharedImage(t *testing.T) {
	t.Parallel()
	image, overlay := shellImage(t), userDir(t)
	g := &group{work: userDir(t), token: newToken()}
	c := container.Container{
		SIF: image, Binds: []container.Bind{{Source: g.work, Target: "/work"}},
		Args: []string{"sh", "-c", "echo begun; while ! test -e /work/go; do sleep 0.01; done; cat /usr/shipped", g.token},
	}
	unpacked := c
	unpacked.PrivateDir = overlay
	g.run = startRequestOnHost(t, overlayOn+overlay, runRequest{Runtime: testRuntime{Shared: true}, Container: c, Others: []runRequest{{Container: unpacked}}})
	g.awaitAll()
	must(t, syscall.Kill(g.server(image), syscall.SIGKILL))
	testenv.AwaitFile(t, g.req.StdoutPath+endedSuffix)
	g.tell("go")
	if a := g.wait().Others[0]; a.Error != "" || a.Exit.Code != 0 || !strings.HasPrefix(a.Exit.Note, unpackedForThis) || g.outputOf(1) != "begun\nby the image\n" {
		t.Errorf("%+v and output %q", a, g.outputOf(1))
	}
}

func TestContainerIsStoppedWhileAnotherWaitsForItsImage(t *testing.T) {
	t.Parallel()
	dir, image := userDir(t), shellImage(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	c := container.Container{SIF: image, ShellCommand: "cat /usr/shipped"}
	r := startBehind(t, fmt.Sprintf("touch %[1]s/reached; while ! test -e %[1]s/go; do sleep 0.01; done", dir), runRequest{
		Runtime: testRuntime{Shared: true}, Container: c,
		Others: []runRequest{{Container: c, After: file("reached"), Until: file("stop")}},
	})
	g := &group{run: r}
	g.await("two have begun", func() bool {
		begun, err := filepath.Glob(filepath.Join(r.req.Container.PrivateDir, "container-*"))
		return err == nil && len(begun) == 2
	})
	must(t, os.WriteFile(file("stop"), nil, 0o644))
	testenv.AwaitFile(t, r.req.Others[0].StdoutPath+endedSuffix)
	must(t, os.WriteFile(file("go"), nil, 0o644))
	answer := r.wait()
	if answer.Error != "" || r.output() != "by the image\n" {
		t.Errorf("%+v and output %q", answer, r.output())
	}
	if a := answer.Others[0]; !a.Canceled {
		t.Errorf("stopped: %+v", a)
	}
}
