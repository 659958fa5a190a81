package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// On a virtual machine, the number of processes determines the cost of a start. `make bench ONLY=main`
// counts system calls, too.
func TestStartTakesFiveProcesses(t *testing.T) {
	t.Parallel()
	// With no_new_privs, a container has one id.
	startTakes(t, 5, []string{"exe", "squashfuse_ll", "bwrap", "sh"}, func(u testenv.User, strace []string) []string {
		return append([]string{"/usr/bin/setpriv", "--no-new-privs", fmt.Sprintf("--reuid=%d", u.UID), fmt.Sprintf("--regid=%d", u.GID), "--clear-groups"}, strace...)
	})
}

func TestStartWithSubordinateIDsTakesTwoMore(t *testing.T) {
	t.Parallel()
	testenv.SubordinateIDs(t)
	// Only root can trace a program with privileges.
	startTakes(t, 7, []string{"exe", "newgidmap", "newuidmap", "squashfuse_ll", "bwrap", "sh"}, func(u testenv.User, strace []string) []string {
		return append([]string{strace[0], "-u", u.Name}, strace[1:]...)
	})
}

// startTakes counts the processes of a start, whose worker runs as an ordinary user by the words that as
// makes of a call of strace.
func startTakes(t *testing.T, count int, want []string, as func(u testenv.User, strace []string) []string) {
	t.Helper()
	testenv.Root(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skipf("needs strace: %v", err)
	}
	x := prepareRuntime(t, runtimes.Builtin, 0, ":") // strace must not read the memory of a program whose pages squashfuse brings
	trace := filepath.Join(string(x.layout), "trace")
	must(t, os.WriteFile(trace, nil, 0o666))
	must(t, os.Chmod(trace, 0o666))
	x.cmd.Args = append(as(testenv.Researcher(t), []string{strace, "-f", "-s", "200", "-e", "trace=clone,clone3,fork,vfork,execve", "-o", trace, x.cmd.Path}), x.cmd.Args[1:]...)
	x.cmd.Path, x.cmd.SysProcAttr = x.cmd.Args[0], nil
	x.succeed()
	text, err := os.ReadFile(trace)
	must(t, err)
	processes, programs := 0, []string{}
	begun := regexp.MustCompile(`^\d+ +(clone3?|v?fork|execve)\((?:"([^"]*)")?`)
	for line := range strings.Lines(string(text)) {
		call := begun.FindStringSubmatch(line)
		switch {
		case call == nil || strings.Contains(line, "CLONE_THREAD"):
		case call[1] == "execve":
			programs = append(programs, filepath.Base(call[2]))
		default:
			processes++
		}
		if slices.Contains(programs, "sh") { // the command's
			break
		}
	}
	if i := slices.Index(programs, "newuidmap"); i > 0 && i+1 < len(programs) && programs[i+1] == "newgidmap" { // they start together
		programs[i], programs[i+1] = programs[i+1], programs[i]
	}
	if diff := cmp.Diff(append([]string{filepath.Base(x.program)}, want...), programs); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
	if processes != count { // the init, squashfuse, bubblewrap, its first process inside, and the command
		t.Errorf("cl-worker and its children start %d processes until the command begins, want %d", processes, count)
	}
}
