package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// On a virtual machine, the number of processes determines the cost of a start. `make bench ONLY=main`
// counts system calls, too.
func TestStartTakesFourProcesses(t *testing.T) {
	t.Parallel()
	// With no_new_privs, a container has one id.
	startTakes(t, 4, []string{"exe", "squashfuse_ll", "sh"}, func(u testenv.User, strace []string) []string {
		return append([]string{"/usr/bin/setpriv", "--no-new-privs", fmt.Sprintf("--reuid=%d", u.UID), fmt.Sprintf("--regid=%d", u.GID), "--clear-groups"}, strace...)
	})
}

func TestStartWithSubordinateIDsTakesTwoMore(t *testing.T) {
	t.Parallel()
	testenv.SubordinateIDs(t)
	// Only root can trace a program with privileges.
	startTakes(t, 6, []string{"exe", "newgidmap", "newuidmap", "squashfuse_ll", "sh"}, func(u testenv.User, strace []string) []string {
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
	x.cmd.Args = append(as(testenv.Researcher(t), []string{strace, "-f", "-s", "200", "--decode-pids=pidns", "-e", "trace=clone,clone3,fork,vfork,execve", "-o", trace, x.cmd.Path}), x.cmd.Args[1:]...)
	x.cmd.Path, x.cmd.SysProcAttr = x.cmd.Args[0], nil
	x.succeed()
	text, err := os.ReadFile(trace)
	must(t, err)
	processes, programs := readTrace(string(text)).count()
	if i := slices.Index(programs, "newuidmap"); i > 0 && i+1 < len(programs) && programs[i+1] == "newgidmap" { // they start together
		programs[i], programs[i+1] = programs[i+1], programs[i]
	}
	if diff := gocmp.Diff(append([]string{filepath.Base(x.program)}, want...), programs); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
	if processes != count { // the init, squashfuse, the first process, and the command
		t.Errorf("cl-worker and its children start %d processes until the command begins, want %d; the trace has\n%s", processes, count, text)
	}
}

// The lines of strace: a call that makes a process or begins a program, and the result of one, which may be in a later
// line. A process in a PID namespace has a second number there.
var (
	tracedCall   = regexp.MustCompile(`^(\d+) +(?:(clone3?|v?fork|execve)\(|<\.\.\. (?:clone3?|v?fork) resumed>)`)
	tracedResult = regexp.MustCompile(` = (?:\d+ /\* (\d+) in strace's PID NS \*/|(\d+)|-\d+ .*|\? .*)$`)
	tracedWords  = regexp.MustCompile(`"[^"]*"`)
)

// tracedStart is a start as a trace shows it.
type tracedStart struct {
	// made and begun are the processes and the programs in their order until the command begins.
	made  []string
	begun []struct{ process, program string }
	// words are those of each process's first program.
	words map[string][]string
}

// notMade is the result of a call that has made no process: a signal that comes before that makes the kernel begin the
// call anew (ERESTARTNOINTR).
const notMade = "none"

func readTrace(trace string) tracedStart {
	s := tracedStart{words: map[string][]string{}}
	waiting := map[string]int{} // the process that a caller is about to make, while its call has not returned
	commandBegins := false
	for line := range strings.Lines(trace) {
		line = strings.TrimSuffix(line, "\n")
		call := tracedCall.FindStringSubmatch(line)
		if call == nil || strings.Contains(line, "CLONE_THREAD") {
			continue
		}
		caller, name, child := call[1], call[2], ""
		if result := tracedResult.FindStringSubmatch(line); result != nil {
			child = cmp.Or(result[1], result[2], notMade)
		}
		switch i, waits := waiting[caller]; {
		case name == "execve":
			words := tracedWords.FindAllString(line, -1)
			if s.words[caller] == nil {
				s.words[caller] = words
			}
			if program := filepath.Base(strings.Trim(words[0], `"`)); !commandBegins {
				s.begun = append(s.begun, struct{ process, program string }{caller, program})
				commandBegins = program == "sh"
			}
		case name == "" && waits:
			s.made[i] = child
			delete(waiting, caller)
		case name != "" && !commandBegins:
			if child == "" {
				waiting[caller] = len(s.made)
			}
			s.made = append(s.made, child)
		}
	}
	return s
}

// measures reports whether a process measures the disk, or maps the ids of one that does: those that map get its number.
// A worker measures each second, and on a busy machine a start takes longer.
func (s tracedStart) measures(process string) bool {
	of := func(process string) bool {
		return slices.Contains(s.words[strings.Trim(process, `"`)], `"subordinate-ids"`)
	}
	return of(process) || slices.ContainsFunc(s.words[process], of)
}

// count returns the number of the processes, and the programs, without those that measure.
func (s tracedStart) count() (processes int, programs []string) {
	for _, process := range s.made {
		if process != notMade && !s.measures(process) {
			processes++
		}
	}
	for _, b := range s.begun {
		if !s.measures(b.process) {
			programs = append(programs, b.program)
		}
	}
	return processes, programs
}

func TestStartHasTheProcessesOfTheTraceWithoutThoseThatMeasure(t *testing.T) {
	t.Parallel()
	const trace = `10 execve("/usr/bin/cl-worker", ["cl-worker"], 0x7ffd /* 9 vars */) = 0
10 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_THREAD, parent_tid=[11]) = 11
10 clone(child_stack=NULL, flags=CLONE_NEWPID|SIGCHLD) = ? ERESTARTNOINTR (To be restarted)
10 clone(child_stack=NULL, flags=CLONE_NEWPID|SIGCHLD <unfinished ...>
11 vfork( <unfinished ...>
10 <... clone resumed>) = ? ERESTARTNOINTR (To be restarted)
10 clone(child_stack=NULL, flags=CLONE_NEWPID|SIGCHLD <unfinished ...>
10 <... clone resumed>) = 12
11 <... vfork resumed>) = 13
13 execve("/usr/bin/newuidmap", ["newuidmap", "12", "0"], 0x7ffd /* 0 vars */) = 0
12 fork() = -1 EAGAIN (Resource temporarily unavailable)
10 vfork() = 20
20 execve("/proc/self/exe", ["/proc/self/exe", "subordinate-ids", "measure"], 0x7ffd /* 0 vars */) = 0
11 vfork() = 21
21 execve("/usr/bin/newuidmap", ["newuidmap", "20", "0"], 0x7ffd /* 0 vars */) = 0
10 vfork( <unfinished ...>
12 clone3({flags=CLONE_CLEAR_SIGHAND, exit_signal=SIGCHLD}, 88 <unfinished ...>
14 execve("/bin/sh", ["sh"], 0x7ffd /* 0 vars */) = 0
12 <... clone3 resumed>) = 2 /* 14 in strace's PID NS */
22 execve("/proc/self/exe", ["/proc/self/exe", "subordinate-ids", "measure"], 0x7ffd /* 0 vars */) = 0
10 <... vfork resumed>) = 22
14 fork() = 3 /* 15 in strace's PID NS */
`
	processes, programs := readTrace(trace).count()
	if want := []string{"cl-worker", "newuidmap", "sh"}; processes != 3 || !slices.Equal(programs, want) {
		t.Errorf("%d processes of %q, want 3 of %q", processes, programs, want)
	}
}
