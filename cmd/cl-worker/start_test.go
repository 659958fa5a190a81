package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
)

// On a virtual machine, the number of processes determines the cost of a start. `make bench ONLY=main`
// counts system calls, too.
func TestStartTakesFiveProcesses(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skipf("needs strace: %v", err)
	}
	x := prepareRuntime(t, runtimes.Builtin, 0, ":") // strace must not read the memory of a program whose pages squashfuse brings
	trace := filepath.Join(string(x.layout), "trace")
	x.cmd.Args = append([]string{strace, "-f", "-s", "200", "-e", "trace=clone,clone3,fork,vfork,execve", "-o", trace, x.cmd.Path}, x.cmd.Args[1:]...)
	x.cmd.Path = strace
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
	if diff := cmp.Diff([]string{filepath.Base(x.program), "exe", "squashfuse_ll", "bwrap", "sh"}, programs); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
	if processes != 5 { // the init, squashfuse, bubblewrap, its first process inside, and the command
		t.Errorf("cl-worker and its children start %d processes until the command begins, want 5", processes)
	}
}
