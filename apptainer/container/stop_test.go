package container_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestFidelityEndOfContextTerminatesEveryProcess(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		work := userDir(t)
		c := w.shellImage(t)
		c.KillGrace = 20 * time.Second
		c.Binds = []container.Bind{{Source: work, Target: "/work"}}
		c.ShellCommand = `
setsid sh -c 'trap "echo daemon saved >/work/daemon; exit" TERM; touch /work/ready; while :; do sleep 0.01; done' &
trap 'while ! test -s /work/daemon; do sleep 0.01; done; echo command saved; exit 3' TERM
while ! test -e /work/ready; do sleep 0.01; done
echo begun
while :; do sleep 0.01; done`
		r := w.start(t, c)
		r.awaitBegun()
		must(t, r.cmd.Process.Signal(syscall.SIGTERM))
		answer := r.wait()
		if answer.Error != "" || answer.Exit.Code != 3 || !strings.Contains(r.output(), "command saved\n") {
			t.Errorf("%+v with output %q, want exit status 3 and what it saved", answer, r.output())
		}
		if saved, err := os.ReadFile(filepath.Join(work, "daemon")); err != nil || string(saved) != "daemon saved\n" {
			t.Errorf("the other session's process left %q, %v", saved, err)
		}
	})
}

func TestFidelityProcessThatIgnoresTermIsKilledAfterItsGrace(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		c := w.shellImage(t)
		c.KillGrace = 50 * time.Millisecond
		c.ShellCommand = `trap '' TERM; echo begun; echo kept >&2; while :; do sleep 0.01; done`
		r := w.start(t, c)
		r.awaitBegun()
		must(t, r.cmd.Process.Signal(syscall.SIGTERM))
		if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 137 || answer.Exit.Signal != 9 || !strings.Contains(r.output(), "kept") {
			t.Errorf("%+v, want killed by 9 with its output; %q", answer, r.output())
		}
	})
}

func TestKillOfAStoppingContainersPid1IsItsEnd(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]testRuntime{"first process": {}, "bubblewrap": {oneID: true, bubblewrap: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := w.start(t, container.Container{
				SIF: shellImage(t), KillGrace: time.Hour, ShellCommand: `trap 'echo told' TERM; echo begun; while :; do sleep 0.01; done`,
			})
			r.awaitBegun()
			must(t, r.cmd.Process.Signal(syscall.SIGTERM))
			r.awaitOutput("told")
			must(t, syscall.Kill(r.pid1(), syscall.SIGKILL))
			testenv.AwaitFile(t, r.req.StdoutPath+endedSuffix)
			if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 137 {
				t.Errorf("%+v, want exit status 137", answer)
			}
		})
	}
}

// pid1 returns the first process of a container, even if that is bubblewrap's own.
func (r *run) pid1() int {
	r.t.Helper()
	outer := 0
	for _, p := range r.processes() {
		switch {
		case p.name == "cl-first":
			return p.pid
		case p.name != "bwrap":
		case p.parent == outer:
			return p.pid
		default:
			outer = p.pid
		}
	}
	r.t.Fatal("there is no first process")
	return 0
}

func TestFidelityBackgroundProcessesEndWithTheCommand(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		token := newToken()
		c := w.shellImage(t)
		c.ShellCommand = "setsid sleep " + token + " & sleep " + token + " & exit 4"
		r := w.start(t, c)
		if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 4 {
			t.Errorf("%+v, want exit status 4", answer)
		}
		r.awaitNothing(token, nil)
	})
}

// newToken returns a time to sleep that distinguishes a test's processes from others.
func newToken() string {
	var digits [4]byte
	_, _ = rand.Read(digits[:])
	return fmt.Sprintf("1000.%d%d%d%d", digits[0], digits[1], digits[2], digits[3])
}

// awaitNothing waits until a run has left nothing: no process, no process with the token among its
// arguments, no mount of its scratch, and no container of an engine.
func (r *run) awaitNothing(token string, parts []process) {
	r.t.Helper()
	gone := func(p process) bool { return !slices.Contains(processTable(r.t), p) }
	var left string
	testenv.Await(r.t, "nothing is left of the run", func() bool {
		parts = slices.DeleteFunc(parts, gone)
		named, containers := processesWith(r.t, token), r.runtime.containersOf(r.t, r.cmd.Process.Pid)
		mounted := mounted(r.t, r.req.Container.PrivateDir)
		left = fmt.Sprintf("processes %v and %v, containers %v, mounted %v", parts, named, containers, mounted)
		return len(parts)+len(named)+len(containers) == 0 && !mounted
	}, &left)
}

// processesWith lists the processes with a word among their arguments.
func processesWith(tb testing.TB, word string) (found []string) {
	tb.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(tb, err)
	for _, name := range lines {
		if line, err := os.ReadFile(name); err == nil && slices.Contains(strings.Split(string(bytes.TrimSuffix(line, []byte{0})), "\x00"), word) {
			found = append(found, name)
		}
	}
	return found
}

// containersOf lists an engine's containers that a process started.
func (w testRuntime) containersOf(tb testing.TB, pid int) []string {
	tb.Helper()
	if w.Engine == nil {
		return nil
	}
	all := strings.Fields(w.call(tb, "ps", "--all", "--format", "{{.Names}}"))
	return slices.DeleteFunc(all, func(name string) bool {
		return !strings.HasPrefix(name, fmt.Sprintf("cl-slurm-%d-%d-", ordinaryUID(tb), pid))
	})
}

// victims are the parts of a running container, by their names here.
func (w testRuntime) victims() []string {
	switch {
	case w.Apptainer != nil:
		return []string{"caller", "init", "apptainer", "squashfuse_ll", "enter"}
	case w.Engine != nil:
		return []string{"caller", "client"}
	case w.Pods != nil:
		return []string{"caller"}
	}
	return []string{"caller", "init", "squashfuse_ll"}
}

// victim returns the process id of a part; 0 if there is none.
func (r *run) victim(part string, parts []process) int {
	named := func(name string) int {
		if i := slices.IndexFunc(parts, func(p process) bool { return strings.HasPrefix(p.name, name) }); i >= 0 {
			return parts[i].pid
		}
		return 0
	}
	switch part {
	case "caller":
		return r.cmd.Process.Pid
	case "init", "client":
		return parts[0].pid
	case "apptainer":
		return named("starter") // or starter-suid
	case "enter":
		return named("init")
	}
	return named(part)
}

func TestFidelityKillingAnyPartLeavesNoProcessAndNoMount(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		image := w.shellImage(t)
		for _, victim := range w.victims() {
			t.Run(victim, func(t *testing.T) {
				t.Parallel()
				token := newToken()
				c := image
				c.ShellCommand = "setsid sleep " + token + " & echo begun; sleep " + token
				r := w.start(t, c)
				r.awaitBegun()
				parts := r.processes()
				pid := r.victim(victim, parts)
				if pid == 0 && w.plain() && victim == "squashfuse_ll" {
					t.Skip("the kernel serves the image, so there is no squashfuse")
				}
				if pid == 0 {
					t.Fatalf("no %s among %v", victim, parts)
				}
				must(t, syscall.Kill(pid, syscall.SIGKILL))
				switch {
				case victim == "caller":
					_ = r.cmd.Wait()
				case w.plain() && victim == "squashfuse_ll":
					// Apptainer does not watch it: the command continues without its files.
					must(t, r.cmd.Process.Signal(syscall.SIGTERM))
					r.wait()
				default:
					if answer := r.wait(); answer.Error == "" {
						t.Errorf("%+v, want an error", answer)
					}
				}
				r.awaitNothing(token, parts)
			})
		}
	})
}

// A batch system may send TERM to every process of a job at the same time.
func TestFidelityTermToEveryProcessOfTheJobLosesNoExitStatus(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		if w.Pods != nil {
			t.Skip("a pod's processes are no children of its caller")
		}
		work := userDir(t)
		c := w.shellImage(t)
		c.KillGrace = 20 * time.Second
		c.Binds = []container.Bind{{Source: work, Target: "/work"}}
		c.ShellCommand = `trap 'while ! test -e /work/go; do sleep 0.01; done; cat /usr/shipped; exit 5' TERM; echo begun; while :; do sleep 0.01; done`
		r := w.start(t, c)
		r.awaitBegun()
		for _, p := range r.processes() {
			if w.plain() && strings.Contains(p.name, "fuse") {
				continue // the processes that serve Apptainer's image obey TERM
			}
			if err := syscall.Kill(p.pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
		}
		must(t, os.WriteFile(filepath.Join(work, "go"), nil, 0o644))
		if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 5 || !strings.Contains(r.output(), "by the image\n") {
			t.Errorf("%+v with output %q, want exit status 5 and the image still readable", answer, r.output())
		}
	})
}

// The next run removes the leftovers of a daemon's crash.
func TestContainersOfProcessesThatAreGoneAreSwept(t *testing.T) {
	t.Parallel()
	for name, find := range map[string]func(testing.TB) testRuntime{"docker": dockerRuntime, "podman": podmanRuntime} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := find(t)
			c := w.shellImage(t)
			// Parallel tests sweep, too, so the container gets the name last.
			id := strings.TrimSpace(w.call(t, append(append([]string{"create", "--volume", "/data"}, w.Engine.RunOptions...), c.PinnedReference, "true")...))
			volume := strings.TrimSpace(w.call(t, "inspect", "--format", "{{range .Mounts}}{{.Name}}{{end}}", id))
			if !strings.Contains(w.call(t, "volume", "ls", "--quiet"), volume) || volume == "" {
				t.Fatalf("%s has no volume: %q", id, volume)
			}
			old := fmt.Sprintf("cl-slurm-%d-%d-%s", ordinaryUID(t), 1<<22+1, "1-leftover") // above any process id
			w.call(t, "rename", id, old)
			c.Args = []string{"true"}
			w.shell(t, c)
			// Another test may just be removing it.
			for line := range strings.Lines(w.call(t, "ps", "--all", "--format", "{{.Names}} {{.Status}}")) {
				if strings.Contains(line, old) && !strings.Contains(line, "Remov") {
					t.Errorf("left: %q", line)
				}
			}
			testenv.Await(t, "its volume is gone", func() bool {
				return !strings.Contains(w.call(t, "volume", "ls", "--quiet"), volume)
			})
		})
	}
}
