package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
	"github.com/cl-slurm/cl-slurm/spool"
)

// A count is the median of startsCounted starts.
const startsCounted = 5

// startCounts has the counts between a job's script and its command.
type startCounts struct{ processes, threads, syscalls float64 }

// benchStart counts the processes, threads and system calls of cl-worker and its children between the exec of a
// job's script and that of the command, with the built-in runtime, and compares them with a bare job's. On a
// virtual machine these cost more than anything else.
func (s *site) benchStart(ctx context.Context) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: main/start_processes, main/start_threads and main/start_syscalls are not counted: there is no strace on PATH")
		return
	}
	var ours, bare []startCounts
	for range startsCounted {
		ours = append(ours, s.countStart(ctx, strace))
		bare = append(bare, s.countBareStart(ctx, strace))
	}
	for _, f := range []struct {
		name string
		of   func(startCounts) float64
		bar  float64 // half of the first measurement
	}{
		{"processes", func(c startCounts) float64 { return c.processes }, 3},
		{"threads", func(c startCounts) float64 { return c.threads }, 8},
		{"syscalls", func(c startCounts) float64 { return c.syscalls }, 940},
	} {
		count := figure{name: "main/start_" + f.name, value: medianOf(ours, f.of), unit: f.name, bar: f.bar}
		if base := medianOf(bare, f.of); base > 0 { // it starts no threads
			count.against, count.base = "bare_script", base
		}
		count.print()
	}
}

// countStart counts one start.
func (s *site) countStart(ctx context.Context, strace string) startCounts {
	const bundle = "0x00000000000000000000000000000001"
	dir := filepath.Join(s.Dir, "home", "start")
	layout := spool.Layout(dir)
	a := layout.Attempt(bundle, "1-b1")
	spec := spool.Spec{
		Bundle: bundle, Attempt: 1, Command: stamp, Inputs: spool.Inputs{SIF: s.sif}, Runtime: runtimes.Builtin,
		RunDir: layout.RunDir(bundle, "1-b1"), Scratch: "/tmp",
	}
	for _, d := range append(layout.Directories(), spec.RunDir) {
		check(os.MkdirAll(d, 0o755))
	}
	check(a.WriteSpec(spec))
	program(ctx, "chown", "-R", testsite.User+":", dir)
	c := s.countScript(ctx, strace, fmt.Sprintf("#!/bin/sh\nexec %s exec %s\n", filepath.Join(testsite.Base, "bin/cl-worker"), a.SpecPath()))
	check(os.RemoveAll(dir))
	return c
}

// countBareStart counts one start of a bare job's script.
func (s *site) countBareStart(ctx context.Context, strace string) startCounts {
	return s.countScript(ctx, strace, fmt.Sprintf(bareScript, must(sifconfig.Read(s.sif)).Offset, s.sif, stamp, os.DevNull))
}

// countScript runs a script and counts processes, threads and system calls until stamp is executed.
func (s *site) countScript(ctx context.Context, strace, text string) startCounts {
	script := filepath.Join(s.Dir, "home", "counted")
	trace := script + ".trace"
	check(os.WriteFile(script, []byte(text), 0o755))
	// raw: strace must not read the memory of the command. A page of it may be a file of the image, which only
	// squashfuse can read, and strace has stopped squashfuse.
	// -u: the tracer is root, and newuidmap keeps its privilege (strace(1)).
	cmd := exec.CommandContext(ctx, strace, "-u", testsite.User, "-f", "-s", "256", "-e", "raw=!execve,clone,clone3", "-o", trace, script)
	cmd.Env, cmd.Dir, cmd.Stderr = []string{"PATH=" + os.Getenv("PATH")}, filepath.Dir(script), os.Stderr
	check(cmd.Run())
	c := parseStart(must(os.ReadFile(trace)), stamp)
	check(os.Remove(script))
	check(os.Remove(trace))
	return c
}

var (
	// tracedCall is the begin of a system call in strace's output.
	tracedCall = regexp.MustCompile(`^\d+ +(\w+)\(`)
	// tracedShell is the exec of the command's shell.
	tracedShell = regexp.MustCompile(`execve\("(?:/usr)?/bin/(?:ba)?sh", \[`)
)

// parseStart counts the calls in strace's output until a shell executes the command. It leaves out the calls by
// which Go's scheduler waits, because their number depends on the duration of the rest.
func parseStart(trace []byte, command string) startCounts {
	c := startCounts{processes: 1} // the script
	for line := range bytes.Lines(trace) {
		call := tracedCall.FindSubmatch(line)
		if call == nil {
			continue // the end of a call, of a process, or a signal
		}
		switch string(call[1]) {
		case "futex", "nanosleep", "epoll_pwait", "sched_yield", "restart_syscall":
			continue
		case "clone", "clone3", "fork", "vfork":
			if bytes.Contains(line, []byte("CLONE_THREAD")) {
				c.threads++
			} else {
				c.processes++
			}
		case "execve":
			if tracedShell.Match(line) && bytes.Contains(line, []byte(`"-c", "`+command+`"]`)) {
				return c
			}
		}
		c.syscalls++
	}
	check(fmt.Errorf("count a start: the command %q is not in the trace", command))
	return c
}
